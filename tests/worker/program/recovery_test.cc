// Recovery beside backward: what runs ahead and what orders it, what it takes of memory and gains
// of time, and that no order which streams and events allow changes a bit of a gradient.
#include "worker/program/lowering/recovery.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/program/models.h"
#include "tests/worker/program/plan_checks.h"
#include "worker/execute/gemm.h"
#include "worker/program/lower.h"
#include "worker/program/planning/form_plans.h"
#include "worker/program/planning/plan_memo.h"
#include "worker/program/planning/predict.h"
#include "worker/program/replay.h"

namespace snug::program {
namespace {

ModelConfig Reversible(const std::string& family, const LlamaSizes& sizes) {
  ModelConfig config = family == "llama" ? LlamaShape(sizes) : FamilyShape(family, sizes);
  config.reversible = true;
  return config;
}

Program Llama(int64_t layers, const TrainingMode& mode = FullMode()) {
  return *BuildProgram(Reversible("llama", {layers, 32, 4, 2, 72, 61}), mode);
}

Plan RecoverAll(const Program& program) {
  return *PinnedPlan(program, {{"*", Stash::kReversible}});
}

Plan AllAhead(const Program& program) { return *RecoveredAhead(RecoverAll(program)); }

Tape TapeOf(const Program& program, const Plan& plan, const Machine& machine = {}) {
  return *Lower(
      program, plan,
      {.key = {.tokens = 64, .documents = 1, .longest_document = 64}, .machine = machine});
}

Program RandomProgram(std::mt19937& random) {
  std::vector<std::string> families = FamilyNames();
  families.emplace_back("llama");
  const auto layers = static_cast<int64_t>(1 + random() % 5);
  TrainingMode mode = random() % 2 == 0 ? FullMode() : LoraMode();
  mode.release_gradients = random() % 3 == 0;
  return *BuildProgram(Reversible(families[random() % families.size()], {layers, 8, 2, 1, 12, 11}),
                       mode);
}

// Reversible in most places, of any kind in others.
Plan MostlyReversible(const Program& program, std::mt19937& random) {
  Plan plan = RandomPlan(program, 3, random, /*segments=*/random() % 2 == 1,
                         {size_t{kStashes}, /*loops=*/random() % 3 == 0});
  for (Recipe& recipe : plan.recipes) {
    const size_t others = random() % 3;  // Of four.
    for (SiteStash& stash : recipe)
      if (random() % 4 >= others) stash = Stash::kReversible;
  }
  return plan;
}

// The same, some of whose layers recover ahead.
Plan SomeAhead(const Plan& plan, std::mt19937& random) {
  Plan ahead = RecoveredAhead(plan).value_or(plan);
  for (Recipe& recipe : ahead.recipes) {
    if (random() % 4 != 0) continue;
    for (SiteStash& stash : recipe) stash.ahead = false;
  }
  return ahead;
}

bool RunsAhead(const Instruction& line) {
  return line.stream == kRecoverStream && line.op != nullptr;
}

bool WaitsForRecovery(const Instruction& line) {
  return line.kind == Instruction::Kind::kWait && line.event == kIsRecovered;
}

TEST(RecoveryTest, Rev10AnyOrderGivesTheGradientsOfTheVanillaOrder) {
  std::mt19937 random(51);
  for (int i = 0; i < 25; ++i) {
    SCOPED_TRACE(i);
    const Program program = RandomProgram(random);
    std::vector<Plan> vanilla, ahead;
    for (int p = 0; p < 10; ++p) {
      vanilla.push_back(MostlyReversible(program, random));
      ahead.push_back(SomeAhead(vanilla.back(), random));
    }
    vanilla.push_back(RecoverAll(program));
    ahead.push_back(AllAhead(program));
    ASSERT_NO_FATAL_FAILURE(ExpectAnyOrderGivesTheGradientsOf(program, ahead, vanilla, random));
  }
}

// Slots go by what is there, not by the number of a layer.
TEST(RecoveryTest, Rev8AnyDepth) {
  std::mt19937 random(54);
  for (const int64_t layers : {1, 2, 3, 4, 5, 7, 12}) {
    SCOPED_TRACE(layers);
    const Program program =
        *BuildProgram(Reversible("llama", {layers, 8, 2, 1, 12, 11}), FullMode());
    ExpectAnyOrderGivesTheGradientsOf(program, {AllAhead(program), AllAhead(program)},
                                      {RecoverAll(program), RecomputePlan(program, 0)}, random);
  }
}

// ---- which lines are ordered --------------------------------------------------------------------

// Bytes of the arena, or of the host's memory, that a line reads or writes.
struct Access {
  int64_t begin = 0, end = 0;
  bool on_host = false, writes = false;
};

std::vector<Access> AccessesOf(const Tape& tape, const Instruction& line) {
  std::vector<Access> all;
  const auto add = [&](int32_t index, bool writes) {
    if (index == kNoSlot) return;
    const Slot& slot = tape.slots[static_cast<size_t>(index)];
    all.push_back({slot.offset, slot.offset + slot.bytes, slot.region == Region::kHost, writes});
  };
  const bool sums = line.op != nullptr && line.op->code == OpCode::kAdd;
  const bool makes_outputs = line.direction == Direction::kForward || sums;
  for (const Operand& operand : line.operands.in) add(operand.slot, false);
  for (const Operand& operand : line.operands.out) add(operand.slot, makes_outputs);
  for (const Operand& operand : line.operands.d_out) add(operand.slot, false);
  for (const Operand& operand : line.operands.d_in) add(operand.slot, true);
  for (const int32_t gradient : line.gradients) add(gradient, true);
  add(line.workspace, true);
  return all;
}

bool Conflict(const std::vector<Access>& some, const std::vector<Access>& others) {
  for (const Access& a : some) {
    for (const Access& b : others) {
      const bool meet = a.on_host == b.on_host && a.begin < b.end && b.begin < a.end;
      if (meet && (a.writes || b.writes)) return true;
    }
  }
  return false;
}

// How many lines of each stream have run.
using Clock = std::array<size_t, kStreams>;

// Pairs of lines of which one writes what the other touches, and neither streams nor events order
// the two. By the tape alone: it knows nothing of how the tape was made.
int UnorderedConflicts(const Tape& tape) {
  const size_t lines = tape.instructions.size();
  std::vector<Clock> before(lines);
  std::vector<size_t> number(lines);
  std::vector<std::vector<Access>> accesses(lines);
  std::array<Clock, kStreams> now = {};
  std::map<int16_t, Clock> events;
  for (size_t t = 0; t < lines; ++t) {
    const Instruction& line = tape.instructions[t];
    Clock& clock = now[line.stream];
    if (line.kind == Instruction::Kind::kWait) {
      const Clock& recorded = events.at(line.event);  // Earlier in the tape: so nothing waits for
      for (size_t s = 0; s < kStreams; ++s)           // itself.
        clock[s] = std::max(clock[s], recorded[s]);
    }
    before[t] = clock;
    number[t] = ++clock[line.stream];
    if (line.kind == Instruction::Kind::kRecord) events[line.event] = clock;
    accesses[t] = AccessesOf(tape, line);
  }
  int conflicts = 0;
  for (size_t b = 0; b < lines; ++b) {
    for (size_t a = 0; a < b; ++a) {
      const uint8_t stream = tape.instructions[a].stream;
      if (before[b][stream] >= number[a]) continue;
      if (Conflict(accesses[a], accesses[b])) ++conflicts;
    }
  }
  return conflicts;
}

TEST(RecoveryTest, Rev10EveryReadIsBehindItsWriteByEvents) {
  std::mt19937 random(52);
  int ahead = 0;
  for (int i = 0; i < 120; ++i) {
    const Program program = RandomProgram(random);
    const Tape tape = TapeOf(program, SomeAhead(MostlyReversible(program, random), random));
    ahead += static_cast<int>(
        std::count_if(tape.instructions.begin(), tape.instructions.end(), RunsAhead));
    ASSERT_EQ(UnorderedConflicts(tape), 0) << i;
  }
  EXPECT_GT(ahead, 120);
}

// Were a wait not there, the check above would say so.
TEST(RecoveryTest, AWaitThatIsMissingLeavesAConflict) {
  const Program program = Llama(3);
  Tape tape = TapeOf(program, AllAhead(program));
  ASSERT_EQ(UnorderedConflicts(tape), 0);
  int waits = 0;
  for (Instruction& line : tape.instructions) {
    if (!WaitsForRecovery(line)) continue;
    ++waits;
    line.kind = Instruction::Kind::kRecord;
    line.event = 99;
    EXPECT_GT(UnorderedConflicts(tape), 0) << waits;
    line.kind = Instruction::Kind::kWait;
    line.event = kIsRecovered;
  }
  EXPECT_EQ(waits, 2 * 3);
}

// ---- what runs ahead ----------------------------------------------------------------------------

// A layer's MLP is recovered beside the backward of the layer behind it, or the head, its attention
// beside the backward of its own MLP.
TEST(RecoveryTest, EachHalfOfALayerIsRecoveredBesideTheBackwardBeforeIt) {
  constexpr int kLayers = 4;
  const Program program = Llama(kLayers);
  const Tape tape = TapeOf(program, AllAhead(program));
  int recoveries = 0, recovered = -1, beside = 0;  // The block of the recovery at hand.
  std::set<std::pair<int, int>> pairs;             // A block, and one whose backward runs beside.
  for (const Instruction& line : tape.instructions) {
    if (line.op != nullptr && line.recomputed) {
      EXPECT_EQ(line.stream, kRecoverStream);
      recovered = line.block;
    } else if (line.op != nullptr && recovered >= 0) {
      EXPECT_EQ(line.direction, Direction::kBackward);
      pairs.emplace(recovered, line.block);
      ++beside;
    } else if (WaitsForRecovery(line)) {
      EXPECT_EQ(line.stream, kComputeStream);
      EXPECT_GT(beside, 0);
      ++recoveries;
      recovered = -1;
      beside = 0;
    }
  }
  EXPECT_EQ(recoveries, 2 * kLayers);
  std::set<std::pair<int, int>> expected;
  for (int block = 1; block <= kLayers; ++block) {
    expected.emplace(block, block + 1);
    expected.emplace(block, block);
  }
  EXPECT_EQ(pairs, expected);
}

// By block, op and direction: nothing runs twice, nothing is left out.
TEST(RecoveryTest, TheSameOpsRunAsInTheVanillaOrder) {
  std::mt19937 random(53);
  const auto ops = [](const Tape& tape) {
    std::multiset<std::tuple<int, int, std::string, Direction, bool>> all;
    for (const Instruction& line : tape.instructions) {
      if (line.op != nullptr)
        all.emplace(line.block, line.op_index, line.op->name, line.direction, line.recomputed);
    }
    return all;
  };
  for (int i = 0; i < 40; ++i) {
    const Program program = RandomProgram(random);
    const Plan plan = MostlyReversible(program, random);
    EXPECT_EQ(ops(TapeOf(program, SomeAhead(plan, random))), ops(TapeOf(program, plan))) << i;
  }
}

TEST(RecoveryTest, NothingRunsAheadWhereThePlanDoesNotSaySo) {
  const Program program = Llama(3);
  for (const Instruction& line : TapeOf(program, RecoverAll(program)).instructions)
    EXPECT_EQ(line.stream, kComputeStream);
  EXPECT_FALSE(RecoveredAhead(RecomputePlan(program, 3)).has_value());
}

// ---- memory and time ----------------------------------------------------------------------------

// Bytes of the slots that a recovery touches, its workspace among them; of the largest recovery.
int64_t LargestRecovery(const Tape& tape) {
  std::set<int32_t> slots;
  int64_t largest = 0;
  for (Instruction line : tape.instructions) {
    if (WaitsForRecovery(line)) {
      int64_t bytes = 0;
      for (int32_t slot : slots) bytes += tape.slots[static_cast<size_t>(slot)].bytes;
      largest = std::max(largest, bytes);
      slots.clear();
    }
    if (!RunsAhead(line)) continue;
    line.operands.ForEach([&](const Operand& operand) {
      if (operand) slots.insert(operand.slot);
    });
    if (line.workspace != kNoSlot) slots.insert(line.workspace);
  }
  return largest;
}

TEST(RecoveryTest, Rev11OneRecoveryIsThereBesideWhatTheVanillaOrderHolds) {
  for (const TrainingMode& mode : {FullMode(), LoraMode(), FullMode(DType::kBF16)}) {
    const Program program = Llama(6, mode);
    const Tape vanilla = TapeOf(program, RecoverAll(program));
    const Tape ahead = TapeOf(program, AllAhead(program));
    const int64_t peak = ReplayTape(ahead).peak.total();
    EXPECT_LE(peak, ReplayTape(vanilla).peak.total() + LargestRecovery(ahead));
    EXPECT_LE(ahead.arena_bytes, peak + peak / 10);
  }
}

TEST(RecoveryTest, Rev11WhatIsThereDoesNotGrowWithTheLayers) {
  const auto peak = [](int64_t layers) {
    const Program program = Llama(layers);
    return ReplayTape(TapeOf(program, AllAhead(program))).peak.total();
  };
  EXPECT_EQ(peak(24), peak(8));
}

// One workspace for the lines of a recovery, and it is nobody else's meanwhile.
TEST(RecoveryTest, ARecoveryHasAWorkspaceOfItsOwn) {
  const Program program = Llama(3);
  const Tape tape = TapeOf(program, AllAhead(program));
  std::set<int32_t> own, others, at_hand;
  for (const Instruction& line : tape.instructions) {
    if (WaitsForRecovery(line)) {
      EXPECT_LE(at_hand.size(), 1u);
      at_hand.clear();
    }
    if (line.workspace == kNoSlot) continue;
    (RunsAhead(line) ? own : others).insert(line.workspace);
    if (RunsAhead(line)) at_hand.insert(line.workspace);
  }
  for (const int32_t slot : own) EXPECT_FALSE(others.contains(slot));
}

Machine Gpu(double runs_per_second) {
  Machine gpu = {.cpu = false, .rates = Rates::Of(1e12, 5e10)};
  gpu.rates[Limit::kRuns] = runs_per_second;
  return gpu;
}

// Against the vanilla order.
double TimeAhead(const Program& program, const Machine& machine) {
  return SecondsOf(TapeOf(program, AllAhead(program), machine), machine) /
         SecondsOf(TapeOf(program, RecoverAll(program), machine), machine);
}

TEST(RecoveryTest, OnACpuItGainsNothing) {
  const Program program = Llama(4);
  EXPECT_NEAR(TimeAhead(program, Machine()), 1.0, 1e-12);
}

// Its products pack their operands in the buffers of a second team of threads: as much for each as
// the context has for the first.
TEST(RecoveryTest, OnACpuTheSecondTeamOfThreadsIsInTheContext) {
  const Program program = Llama(4);
  PredictOptions options;
  options.lower.key = {.tokens = 64, .documents = 1, .longest_document = 64};
  options.lower.machine.threads = 3;
  options.context_bytes = 1000;
  const auto context = [&](const Plan& plan) {
    return Predict(program, plan, options)->bytes.context;
  };
  EXPECT_EQ(context(RecoverAll(program)), 1000);
  EXPECT_EQ(context(AllAhead(program)), 1000 + 3 * execute::kGemmBufferBytes);
  options.lower.machine.cpu = false;
  EXPECT_EQ(context(AllAhead(program)), 1000);
}

// Two streams share a device and the host that starts their runs: where either alone is what takes
// the time, they gain nothing, and in between what one would have waited for the other.
TEST(RecoveryTest, Rev12OnAGpuItGainsWhereTheHostAndTheDeviceWaitForOneAnother) {
  const Program program = Llama(4);
  EXPECT_NEAR(TimeAhead(program, Gpu(1e1)), 1.0, 1e-9);
  EXPECT_NEAR(TimeAhead(program, Gpu(1e14)), 1.0, 1e-9);
  double least = 1.0;
  for (double runs = 1e3; runs < 1e9; runs *= 2.0) {
    const double time = TimeAhead(program, Gpu(runs));
    EXPECT_LE(time, 1.0 + 1e-12) << runs;
    least = std::min(least, time);
  }
  EXPECT_LT(least, 1.0 - kLeastGainAhead);
}

// The plans that the planner chooses from, by name.
std::map<std::string, LoweredPlan> PlansOn(const Program& program, const Machine& machine) {
  std::map<std::string, LoweredPlan> plans;
  const LowerOptions options = {.key = {.tokens = 64, .documents = 1, .longest_document = 64},
                                .machine = machine};
  const std::shared_ptr<const PlanFacts> facts = *PlanFactsOf(program, options, {});
  for (const LoweredPlan& lowered : facts->lowered) plans[lowered.plan.name] = lowered;
  return plans;
}

TEST(RecoveryTest, ThePlannerHasItWhereItGainsAndNowhereElse) {
  const std::string suffix = ", recovered ahead";
  const Program program = Llama(4);
  for (const auto& [name, lowered] : PlansOn(program, Machine()))
    EXPECT_FALSE(name.ends_with(suffix)) << name;
  int offered = 0;
  for (double runs = 1e4; runs < 1e9; runs *= 10.0) {
    const std::map<std::string, LoweredPlan> plans = PlansOn(program, Gpu(runs));
    for (const auto& [name, lowered] : plans) {
      if (!name.ends_with(suffix)) continue;
      ++offered;
      const LoweredPlan& vanilla = plans.at(name.substr(0, name.size() - suffix.size()));
      EXPECT_LE(lowered.seconds, (1.0 - kLeastGainAhead) * vanilla.seconds) << name;
      EXPECT_GE(lowered.arena_bytes, vanilla.arena_bytes) << name;
    }
  }
  EXPECT_GT(offered, 0);
}

}  // namespace
}  // namespace snug::program
