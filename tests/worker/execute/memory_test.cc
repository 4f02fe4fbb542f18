// What a tape says about memory, held against what really happens: each slot taken by itself from
// an allocator that knows nothing of tapes.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <optional>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/execute/counting_source.h"
#include "tests/worker/execute/separate_memory.h"
#include "tests/worker/execute/toy_run.h"
#include "tests/worker/program/models.h"
#include "worker/execute/cpu_device.h"
#include "worker/execute/ops/sample.h"
#include "worker/program/replay.h"

namespace snug::execute {
namespace {

using program::DType;
using program::LlamaShape;
using program::Plan;
using program::Program;
using program::RandomPlan;
using program::Tape;
using program::TrainingMode;
using ::testing::HasSubstr;

Plan Mixed(const Program& program) {
  std::mt19937 random(21);
  return RandomPlan(program, 2, random);
}

// Every value of the layers in one way.
Plan All(const Program& program, program::SiteStash stash) {
  Plan plan = *program::PinnedPlan(program, {{"*", stash}});
  plan.name = program::RowOf(stash.kind).name;
  return plan;
}

std::vector<Plan> ExactPlans(const Program& program) {
  const int layers = static_cast<int>(program.config.layers);
  std::mt19937 random(22);
  return {RecomputePlan(program, 0),
          RecomputePlan(program, layers / 2),
          RecomputePlan(program, layers),
          Mixed(program),
          All(program, program::Stash::kOffload),
          RandomPlan(program, 2, random, /*segments=*/true, /*stashes=*/3)};
}

// Whether a linear of the layers is trained.
bool Samples(const Program& program) {
  const std::vector<program::Site> sites = SitesOf(program);
  return std::any_of(sites.begin(), sites.end(), [](const program::Site& site) {
    return site.Serves(program::Stash::kSampled);
  });
}

std::vector<Plan> Plans(const Program& program) {
  std::vector<Plan> plans = ExactPlans(program);
  std::mt19937 random(23);
  plans.push_back(All(program, program::Stash::kInt8));
  plans.push_back(All(program, program::Stash::kInt4));
  plans.push_back(All(program, program::Stash::kTwoBit));
  if (Samples(program)) {
    plans.push_back(All(program, program::Stash::kSampled));
    plans.push_back(All(program, *program::SampledBy(0.1, "wta")));
  }
  plans.push_back(All(program, {program::Stash::kChunk, 5}));
  plans.push_back(RandomPlan(program, 2, random, /*segments=*/true, program::kStashes));
  return plans;
}

double RelativeError(const std::vector<float>& got, const std::vector<float>& exact) {
  double error = 0.0, norm = 0.0;
  for (size_t i = 0; i < exact.size(); ++i) {
    error += (got[i] - exact[i]) * (got[i] - exact[i]);
    norm += exact[i] * exact[i];
  }
  return std::sqrt(error / norm);
}

// Of layers: the head's has one line.
bool HasLoops(const Tape& tape) {
  return std::any_of(tape.instructions.begin(), tape.instructions.end(),
                     [](const program::Instruction& line) { return line.loop.lines > 1; });
}

int64_t HostPeak(const Tape& tape) {
  int64_t peak = 0;
  for (const program::LiveBytes& live : Timeline(tape)) peak = std::max(peak, live.host);
  return peak;
}

TrainingMode LoraWithDropout() {
  TrainingMode mode = program::LoraMode();
  mode.adapter.rank = 4;
  mode.adapter.dropout = 0.25;
  return mode;
}

TrainingMode Releasing(TrainingMode mode) {
  mode.release_gradients = true;
  return mode;
}

std::vector<TrainingMode> Modes() {
  return {program::FullMode(),
          LoraWithDropout(),
          program::LoraMode({"q_proj", "v_proj"}),
          program::LoraMode({"all-linear"}, DType::kBF16),
          program::FullMode(DType::kBF16),
          program::LoraMode({"lm_head", "embed_tokens", "v_proj"}),
          program::LoraMode({"lm_head", "embed_tokens"}, DType::kBF16),
          Releasing(program::FullMode())};
}

std::vector<ToyRun> Runs(const TrainingMode& mode) {
  std::vector<ToyRun> runs;
  runs.emplace_back(*BuildProgram(LlamaShape({3, 32, 4, 2, 72, 61}), mode),
                    std::vector<int64_t>{7, 1, 12});
  runs.emplace_back(*BuildProgram(LlamaShape({2, 64, 4, 4, 96, 333}), mode),
                    std::vector<int64_t>{300});
  runs.emplace_back(*BuildProgram(LlamaShape({4, 48, 6, 1, 128, 97}), mode),
                    std::vector<int64_t>{33, 65, 31, 2});
  return runs;
}

// A family each, whose windows are shorter than the documents.
std::vector<ToyRun> FamilyRuns(const TrainingMode& mode) {
  std::vector<ToyRun> runs;
  for (const std::string& family : program::FamilyNames()) {
    runs.emplace_back(*BuildProgram(program::FamilyShape(family, {3, 32, 4, 2, 72, 61}), mode),
                      std::vector<int64_t>{7, 1, 33});
  }
  return runs;
}

class MemoryTest : public ::testing::Test {
 protected:
  // Runs a tape with each slot by itself.
  absl::StatusOr<double> RunSeparately(ToyRun& run, const Tape& tape, PieceSource& source) {
    CountingSource host;
    SeparateMemory memory(source, host);
    Executor executor(run.parameters(), TestDevice());
    auto loss = run.Run(tape, memory, executor);
    EXPECT_EQ(host.peak(), HostPeak(tape));
    return loss;
  }
};

// Plans of every kind, eight modes, three shapes: to the byte, the device's as the host's.
TEST_F(MemoryTest, AnAllocatorThatKnowsNoTapesMeasuresTheTapesLiveBytes) {
  for (const TrainingMode& mode : Modes()) {
    for (ToyRun& run : Runs(mode)) {
      for (const Plan& plan : Plans(run.program())) {
        const Tape tape = run.Lower(plan);
        CountingSource source;
        const auto loss = RunSeparately(run, tape, source);
        ASSERT_TRUE(loss.ok()) << loss.status();
        EXPECT_EQ(source.peak(), ReplayTape(tape).peak.total()) << plan.name;
        EXPECT_EQ(source.current(), 0);
      }
    }
  }
}

// The same for every family, full and with adapters of all modules.
TEST_F(MemoryTest, EveryFamilyTakesTheTapesLiveBytes) {
  for (const TrainingMode& mode : Modes()) {
    if (mode.lora && mode.adapter.target_modules.size() > 1) continue;  // Phi-3 has no q_proj.
    for (ToyRun& run : FamilyRuns(mode)) {
      SCOPED_TRACE(run.program().config.model_type);
      for (const Plan& plan : Plans(run.program())) {
        const Tape tape = run.Lower(plan);
        CountingSource source;
        const auto loss = RunSeparately(run, tape, source);
        ASSERT_TRUE(loss.ok()) << loss.status();
        EXPECT_EQ(source.peak(), ReplayTape(tape).peak.total()) << plan.name;
        EXPECT_EQ(source.current(), 0);
      }
    }
  }
}

// The comparison above can fail: a slot of 64 bytes more than its value has is noticed.
TEST_F(MemoryTest, SixtyFourPlantedBytesAreNoticed) {
  ToyRun run = std::move(Runs(program::FullMode())[1]);
  Tape planted = run.Lower(RecomputePlan(run.program(), 0));
  for (program::Slot& slot : planted.slots) {
    if (slot.region != program::Region::kStash) continue;
    slot.bytes += 64;
    break;
  }
  CountingSource source;
  const auto loss = RunSeparately(run, planted, source);
  EXPECT_THAT(loss.status().message(), HasSubstr("was never written"));
}

// The arena gives the results of separate memory, and every plan those of keep, to the bit.
TEST_F(MemoryTest, EveryPlanAndPlacementGivesTheGradientsOfKeep) {
  for (const TrainingMode& mode : Modes()) {
    std::vector<ToyRun> runs = Runs(mode);
    if (!mode.lora || mode.adapter.target_modules.size() == 1) {
      for (ToyRun& run : FamilyRuns(mode)) runs.push_back(std::move(run));
    }
    for (ToyRun& run : runs) {
      SCOPED_TRACE(run.program().config.model_type);
      const auto keep = run.RunInArena(run.Lower(RecomputePlan(run.program(), 0)), TestDevice());
      ASSERT_TRUE(keep.ok()) << keep.status();
      const std::vector<float> gradients = run.Gradients();
      ASSERT_TRUE(std::all_of(gradients.begin(), gradients.end(),
                              [](float x) { return std::isfinite(x); }));
      for (const Plan& plan : ExactPlans(run.program())) {
        const Tape tape = run.Lower(plan);
        EXPECT_EQ(*run.RunInArena(tape, TestDevice()), *keep) << plan.name;
        EXPECT_EQ(run.Gradients(), gradients) << plan.name;
        CountingSource source;
        EXPECT_EQ(*RunSeparately(run, tape, source), *keep) << plan.name;
        EXPECT_EQ(run.Gradients(), gradients) << plan.name;
      }
      const Tape forward = run.Lower(RecomputePlan(run.program(), 0), /*training=*/false);
      EXPECT_EQ(*run.RunInArena(forward, TestDevice()), *keep);
    }
  }
}

// A thread that copies may be slow: what computes waits for it where the tape says so.
TEST_F(MemoryTest, LateCopiesChangeNothing) {
  CpuDevice late(/*threads=*/2, [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
  std::mt19937 random(24);
  for (const TrainingMode& mode : {program::FullMode(), LoraWithDropout()}) {
    for (ToyRun& run : Runs(mode)) {
      const auto loss = run.RunInArena(run.Lower(RecomputePlan(run.program(), 0)), TestDevice());
      ASSERT_TRUE(loss.ok()) << loss.status();
      const std::vector<float> gradients = run.Gradients();
      for (const Plan& plan : {All(run.program(), program::Stash::kOffload),
                               RandomPlan(run.program(), 2, random, /*segments=*/true, 3)}) {
        const auto offloaded = run.RunInArena(run.Lower(plan), late);
        ASSERT_TRUE(offloaded.ok()) << offloaded.status();
        EXPECT_EQ(*offloaded, *loss);
        EXPECT_EQ(run.Gradients(), gradients);
      }
    }
  }
}

// A loop does what its ops do over all rows at once, with the same random numbers; only sums over
// rows have another order.
TEST_F(MemoryTest, LoopsGiveTheGradientsOfKeep) {
  // With large adapters and dropout, rounding grows more on its way through the toy.
  const std::pair<TrainingMode, double> modes[] = {{program::FullMode(), 1e-5},
                                                   {LoraWithDropout(), 2e-3}};
  for (const auto& [mode, limit] : modes) {
    for (ToyRun& run : FamilyRuns(mode)) {
      SCOPED_TRACE(run.program().config.model_type);
      const auto keep = run.RunInArena(run.Lower(RecomputePlan(run.program(), 0)), TestDevice());
      const std::vector<float> expected = run.Gradients();
      for (const int32_t rows : {1, 5, 64}) {
        const Tape tape = run.Lower(All(run.program(), {program::Stash::kChunk, rows}));
        EXPECT_TRUE(HasLoops(tape));
        EXPECT_NEAR(*run.RunInArena(tape, TestDevice()), *keep, 1e-5 * *keep);
        EXPECT_LT(RelativeError(run.Gradients(), expected), limit) << rows;
      }
    }
  }
}

// A gradient that is released is the one that was kept, to the bit.
TEST_F(MemoryTest, ReleasedGradientsAreThoseOfKept) {
  for (const TrainingMode& mode : {program::FullMode(), LoraWithDropout()}) {
    std::vector<ToyRun> kept = FamilyRuns(mode), released = FamilyRuns(Releasing(mode));
    for (size_t i = 0; i < kept.size(); ++i) {
      SCOPED_TRACE(kept[i].program().config.model_type);
      std::vector<Plan> plans = ExactPlans(kept[i].program());
      plans.push_back(All(kept[i].program(), {program::Stash::kChunk, 5}));
      for (const Plan& plan : plans) {
        const auto loss = kept[i].RunInArena(kept[i].Lower(plan), TestDevice());
        EXPECT_EQ(*released[i].RunInArena(released[i].Lower(plan), TestDevice()), *loss);
        EXPECT_EQ(released[i].Gradients(), kept[i].Gradients()) << plan.name;
      }
    }
  }
}

// Codes of 8 bits are near what they stand for, those of 4 bits less so; the loss is exact.
TEST_F(MemoryTest, CodesGiveGradientsNearThoseOfKeep) {
  for (ToyRun& run : FamilyRuns(program::FullMode())) {
    SCOPED_TRACE(run.program().config.model_type);
    const auto keep = run.RunInArena(run.Lower(RecomputePlan(run.program(), 0)), TestDevice());
    const std::vector<float> exact = run.Gradients();
    const auto apart = [&](program::Stash stash) {
      EXPECT_EQ(*run.RunInArena(run.Lower(All(run.program(), stash)), TestDevice()), *keep);
      return RelativeError(run.Gradients(), exact);
    };
    const double eight = apart(program::Stash::kInt8), four = apart(program::Stash::kInt4);
    EXPECT_GT(eight, 0.0);
    EXPECT_LT(eight, 0.05);
    EXPECT_GT(four, 4.0 * eight);
    EXPECT_LT(four, 1.0);
    const double two = apart(program::Stash::kTwoBit);
    EXPECT_GT(two, 0.001);
    EXPECT_LT(two, 0.5);
  }
}

// WTA-1: where every row is kept, nothing is drawn.
TEST_F(MemoryTest, Wta1ASampleOfAllRowsGivesTheGradientsOfKeep) {
  for (const TrainingMode& mode : Modes()) {
    for (ToyRun& run : Runs(mode)) {
      if (!Samples(run.program())) continue;
      const auto keep = run.RunInArena(run.Lower(RecomputePlan(run.program(), 0)), TestDevice());
      const std::vector<float> exact = run.Gradients();
      for (const char* estimator : {"pps", "wta"}) {
        const Tape tape = run.Lower(All(run.program(), *program::SampledBy(1.0, estimator)));
        EXPECT_EQ(*run.RunInArena(tape, TestDevice()), *keep);
        EXPECT_EQ(run.Gradients(), exact);
      }
    }
  }
}

// Of many runs that differ in their draws: how far their mean is from the exact gradient, against
// what so many of their variance are from it by chance (1 is expected).
struct Averaged {
  double distance = 0.0;
  bool same_loss = true;
};

Averaged Average(ToyRun& run, const Tape& tape, const OpFunctionTable& functions, int runs) {
  const double loss = *run.RunInArena(run.Lower(RecomputePlan(run.program(), 0)), TestDevice());
  const std::vector<float> exact = run.Gradients();
  std::vector<double> sum(exact.size()), squares(exact.size());
  auto memory = *ArenaMemory::Allocate(TestDevice(), tape.arena_bytes, tape.host_bytes);
  Executor executor(run.parameters(), TestDevice());
  executor.UseFunctions(functions);
  Averaged result;
  for (int i = 0; i < runs; ++i) {
    run.UseStep(i);
    result.same_loss = *run.Run(tape, memory, executor) == loss && result.same_loss;
    const std::vector<float> drawn = run.Gradients();
    for (size_t j = 0; j < drawn.size(); ++j) {
      const double off = static_cast<double>(drawn[j]) - exact[j];
      sum[j] += off;
      squares[j] += off * off;
    }
  }
  double off = 0.0, expected = 0.0;  // ||sum||^2 and its mean, were every run's error by chance.
  for (size_t j = 0; j < sum.size(); ++j) {
    off += sum[j] * sum[j];
    expected += squares[j];
  }
  result.distance = std::sqrt(off / expected);
  return result;
}

// WTA-5 of a whole step, through every layer; control: rows without their weights.
TEST_F(MemoryTest, Wta5SampledGradientsAverageToTheExactOnes) {
  constexpr int kDraws = 300;
  constexpr auto kSample = static_cast<size_t>(program::OpCode::kSampleRows);
  OpFunctionTable unweighted = OpFunctionsOfKernels();
  unweighted[kSample].forward = [](const OpRun& op) {
    OpFunctionsOfKernels()[kSample].forward(op);
    std::fill_n(SampleIn(op.out[0], op.in[0].width).weights, op.out[0].rows, 1.0f);
  };
  TrainingMode lora = program::LoraMode();
  lora.adapter.rank = 4;
  for (const TrainingMode& mode : {program::FullMode(), lora}) {
    for (const char* estimator : {"pps", "wta"}) {
      ToyRun run(*BuildProgram(LlamaShape({2, 32, 4, 2, 72, 61}), mode), {7, 1, 12});
      const Tape tape = run.Lower(All(run.program(), *program::SampledBy(0.3, estimator)));
      const Averaged right = Average(run, tape, OpFunctionsOfKernels(), kDraws);
      EXPECT_TRUE(right.same_loss);
      EXPECT_LT(right.distance, 1.4) << estimator;
      EXPECT_GT(right.distance, 0.6) << estimator;
      EXPECT_GT(Average(run, tape, unweighted, kDraws).distance, 4.0) << estimator;
    }
  }
}

// WTA-13: a step's sample is its own, and the same again.
TEST_F(MemoryTest, Wta13AStepDrawsItsOwnSampleAndTheSameAgain) {
  ToyRun run = std::move(Runs(program::FullMode())[1]);
  const Tape tape = run.Lower(All(run.program(), program::Stash::kSampled));
  const auto gradients = [&](int64_t step) {
    run.UseStep(step);
    EXPECT_TRUE(run.RunInArena(tape, TestDevice()).ok());
    return run.Gradients();
  };
  const std::vector<float> first = gradients(1), second = gradients(2);
  EXPECT_NE(first, second);
  EXPECT_EQ(gradients(1), first);
}

// A write past a value's end is found when the value dies.
TEST_F(MemoryTest, AWriteOutsideAValueIsFound) {
  ToyRun run = std::move(Runs(program::FullMode())[0]);
  const Tape tape = run.Lower(RecomputePlan(run.program(), 0));
  OpFunctionTable functions = OpFunctionsOfKernels();
  functions[static_cast<size_t>(program::OpCode::kAdd)].forward = [](const OpRun& op) {
    OpFunctionsOfKernels()[static_cast<size_t>(program::OpCode::kAdd)].forward(op);
    op.out[0].as<char>()[op.out[0].bytes()] = 1;
  };
  CountingSource source;
  SeparateMemory memory(source);
  Executor executor(run.parameters(), TestDevice());
  executor.UseFunctions(functions);
  EXPECT_FALSE(run.Run(tape, memory, executor).ok());
}

// An op that asks for more than the table declares is stopped, and named.
TEST_F(MemoryTest, AnOpThatUnderDeclaresItsWorkspaceIsNamed) {
  ToyRun run = std::move(Runs(program::FullMode())[1]);
  Tape tape = run.Lower(RecomputePlan(run.program(), 0));
  for (const program::Instruction& line : tape.instructions) {
    if (line.op == nullptr || line.op->code != program::OpCode::kAttention) continue;
    tape.slots[static_cast<size_t>(line.workspace)].bytes = 64;
  }
  const auto loss = run.RunInArena(tape, TestDevice());
  EXPECT_EQ(loss.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(loss.status().message(), HasSubstr("attention"));
}

// An op that takes 64 bytes more than its row of the table declares is stopped, and named.
TEST_F(MemoryTest, SixtyFourBytesMoreThanDeclaredAreRefused) {
  ToyRun run = std::move(Runs(program::FullMode())[0]);
  const Tape tape = run.Lower(RecomputePlan(run.program(), 0));
  OpFunctionTable functions = OpFunctionsOfKernels();
  constexpr auto kGlu = static_cast<size_t>(program::OpCode::kGlu);
  functions[kGlu].backward = [](const OpRun& op) {
    const at::Tensor planted = at::empty({64}, at::kByte);
    OpFunctionsOfKernels()[kGlu].backward(op);
  };
  auto memory = *ArenaMemory::Allocate(TestDevice(), tape.arena_bytes, tape.host_bytes);
  Executor executor(run.parameters(), TestDevice());
  ASSERT_TRUE(run.Run(tape, memory, executor).ok());
  executor.UseFunctions(functions);
  const auto loss = run.Run(tape, memory, executor);
  EXPECT_EQ(loss.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(loss.status().message(), HasSubstr("op mlp"));
  EXPECT_THAT(loss.status().message(), HasSubstr("asked for 64 more with 0 in use"));
}

int64_t ResidentBytes() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// Not an assertion but a look from outside: the growth of the process beside what the tape says.
TEST_F(MemoryTest, PrintsTheGrowthOfTheProcessBesideTheArena) {
  ToyRun run(*BuildProgram(LlamaShape({4, 512, 8, 8, 1024, 2000}), program::LoraMode()),
             {1024, 1024});
  ASSERT_TRUE(run.RunInArena(run.Lower(RecomputePlan(run.program(), 4)), TestDevice()).ok());
  malloc_trim(0);
  const int64_t before = ResidentBytes();
  const Tape tape = run.Lower(RecomputePlan(run.program(), 0));
  auto memory = *ArenaMemory::Allocate(TestDevice(), tape.arena_bytes, tape.host_bytes);
  Executor executor(run.parameters(), TestDevice());
  ASSERT_TRUE(run.Run(tape, memory, executor).ok());
  const int64_t growth = ResidentBytes() - before;
  std::printf("arena %.1f MiB, growth of the process %.1f MiB\n", tape.arena_bytes / 1048576.0,
              static_cast<double>(growth) / 1048576.0);
  EXPECT_GT(growth, 0);
}

}  // namespace
}  // namespace snug::execute
