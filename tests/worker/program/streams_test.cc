// Copies to the host and back beside computing: where they begin, where they are waited for, what
// that costs of memory and hides of time, and that no order which streams and events allow changes
// a gradient.
#include "worker/program/lowering/streams.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "gtest/gtest.h"
#include "tests/worker/program/models.h"
#include "tests/worker/program/plan_checks.h"
#include "worker/program/lower.h"
#include "worker/program/replay.h"

namespace snug::program {
namespace {

constexpr int kLayers = 6;
constexpr int64_t kTokens = 64, kWidth = 32, kInputBytes = 4 * kTokens * kWidth;

Program Llama(const TrainingMode& mode = FullMode()) {
  return *BuildProgram(LlamaShape({kLayers, kWidth, 4, 2, 72, 61}), mode);
}

// Layers run again from what they are handed, which is kept by `inputs`.
Plan FromInputs(const Program& program, Stash inputs) {
  Plan plan = RecomputePlan(program, kLayers);
  const BlockType& type = program.types[static_cast<size_t>(program.blocks[1].type)];
  for (Recipe& recipe : plan.recipes)
    for (int input : type.inputs) recipe[static_cast<size_t>(input)] = inputs;
  return plan;
}

Tape TapeOf(const Program& program, const Plan& plan, const Machine& machine = {}) {
  return *Lower(program, plan,
                {.key = {.tokens = kTokens, .documents = 1, .longest_document = kTokens},
                 .machine = machine});
}

bool IsCopy(const Instruction& line) { return line.kind == Instruction::Kind::kCopy; }

// Where a copy is waited for: the next wait of the stream that computes.
size_t WaitOf(const Tape& tape, size_t copy) {
  while (tape.instructions[copy].kind != Instruction::Kind::kWait ||
         tape.instructions[copy].stream != kComputeStream)
    ++copy;
  return copy;
}

TEST(StreamsTest, CopiesBeginAndAreWaitedForWhereTheRulesSay) {
  const Program program = Llama();
  const Tape tape = TapeOf(program, FromInputs(program, Stash::kOffload));
  std::vector<size_t> to_host, from_host;
  for (size_t t = 0; t < tape.instructions.size(); ++t) {
    const Instruction& line = tape.instructions[t];
    if (!IsCopy(line)) {
      EXPECT_TRUE(line.stream == kComputeStream || line.kind == Instruction::Kind::kRecord ||
                  line.kind == Instruction::Kind::kWait);
      continue;
    }
    EXPECT_EQ(line.stream, kCopyStream);
    (line.recomputed ? from_host : to_host).push_back(t);
  }
  ASSERT_EQ(to_host.size(), size_t{kLayers});
  ASSERT_EQ(from_host.size(), size_t{kLayers});
  const auto computes = [&](size_t from, size_t to) {
    return std::count_if(tape.instructions.begin() + static_cast<int64_t>(from),
                         tape.instructions.begin() + static_cast<int64_t>(to),
                         [](const Instruction& line) { return line.op != nullptr; });
  };
  // Each is on its way while a whole layer, or the head, computes; then the next begins at once.
  for (const std::vector<size_t>* copies : {&to_host, &from_host}) {
    for (size_t i = 0; i < copies->size(); ++i) {
      const size_t wait = WaitOf(tape, (*copies)[i]);
      EXPECT_GT(computes((*copies)[i], wait), 2) << i;
      if (i + 1 < copies->size()) {
        EXPECT_EQ(computes(wait, (*copies)[i + 1]), 0) << i;
      }
    }
  }
}

// Two values of what is copied are there at a time: the one that is read, the one on its way.
TEST(StreamsTest, OneIsOnItsWayBesideTheOneThatIsRead) {
  const Program program = Llama();
  const Tape offloaded = TapeOf(program, FromInputs(program, Stash::kOffload));
  std::map<int32_t, int> copied;  // Slots of the device.
  for (const Instruction& line : offloaded.instructions)
    if (IsCopy(line)) ++copied[(line.recomputed ? line.operands.out[0] : line.operands.in[0]).slot];
  int most = 0;
  for (int32_t t = 0; t < static_cast<int32_t>(offloaded.instructions.size()); ++t) {
    most = std::max(
        most, static_cast<int>(std::count_if(copied.begin(), copied.end(), [&](const auto& slot) {
          const Slot& at = offloaded.slots[static_cast<size_t>(slot.first)];
          return at.first <= t && t <= at.last;
        })));
  }
  EXPECT_EQ(most, 2);
  EXPECT_EQ(offloaded.host_bytes, kLayers * kInputBytes);
  // Where they are kept, all are there when backward begins; here it is two at a layer's peak.
  const Tape kept = TapeOf(program, FromInputs(program, Stash::kKeep));
  EXPECT_LE(offloaded.arena_bytes, kept.arena_bytes - (kLayers - 2) * kInputBytes);
}

// On a device a copy takes time only where it takes longer than what computes meanwhile.
TEST(StreamsTest, CopiesTakeNoTimeBesideLongerComputing) {
  const Program program = Llama();
  Machine gpu = {.cpu = false};
  gpu.rates = Rates::Of(1e12, 5e10);
  const auto seconds = [&](double bytes_per_second) {
    gpu.rates[Limit::kToHost] = gpu.rates[Limit::kFromHost] = bytes_per_second;
    return SecondsOf(TapeOf(program, FromInputs(program, Stash::kOffload), gpu), gpu);
  };
  const double without = SecondsOf(TapeOf(program, FromInputs(program, Stash::kKeep), gpu), gpu);
  EXPECT_DOUBLE_EQ(seconds(kInputBytes / (1e-3 * without)), without);
  const double bytes = 2.0 * kLayers * kInputBytes, slow = bytes / (1e3 * without);
  EXPECT_GT(seconds(slow), 1e3 * without);
  EXPECT_LT(seconds(slow), 1001.0 * without);
}

// A CPU's threads share its cores and its memory. Each way has a rate of its own.
TEST(StreamsTest, OnACpuCopiesTakeTheirTime) {
  const Program program = Llama();
  Machine cpu;
  const Tape tape = TapeOf(program, FromInputs(program, Stash::kOffload), cpu);
  const double sum = SecondsOf(ReplayTape(tape).work, cpu);
  EXPECT_NEAR(SecondsOf(tape, cpu), sum, 1e-9 * sum);
  const auto seconds = [&](double to_host, double from_host) {
    cpu.rates[Limit::kToHost] = to_host;
    cpu.rates[Limit::kFromHost] = from_host;
    return SecondsOf(tape, cpu);
  };
  const double bytes = kLayers * kInputBytes, without = seconds(1e30, 1e30);
  EXPECT_NEAR(seconds(1e6, 1e30), without + bytes / 1e6, 1e-9);
  EXPECT_NEAR(seconds(1e30, 1e5), without + bytes / 1e5, 1e-9);
  EXPECT_NEAR(seconds(1e6, 1e5), without + bytes / 1e6 + bytes / 1e5, 1e-9);
}

// Copies run one behind another on their stream, each at the rate of its way.
TEST(StreamsTest, OnAGpuEachWayIsHiddenByItself) {
  const Program program = Llama();
  Machine gpu = {.cpu = false, .rates = Rates::Of(1e12, 5e10)};
  const Tape tape = TapeOf(program, FromInputs(program, Stash::kOffload), gpu);
  const auto seconds = [&](double to_host, double from_host) {
    gpu.rates[Limit::kToHost] = to_host;
    gpu.rates[Limit::kFromHost] = from_host;
    return SecondsOf(tape, gpu);
  };
  const double without = seconds(1e30, 1e30);
  const double slow = kLayers * kInputBytes / (1e3 * without);  // All of them, one way.
  for (const double one_way : {seconds(slow, 1e30), seconds(1e30, slow)}) {
    EXPECT_GE(one_way, 1e3 * without);
    EXPECT_LT(one_way, 1001.0 * without);
  }
  EXPECT_GE(seconds(slow, slow), 2e3 * without);
}

TEST(StreamsTest, NothingIsCopiedByOtherPlans) {
  const Program program = Llama();
  for (const Plan& plan : {RecomputePlan(program, 0), RecomputePlan(program, kLayers)})
    for (const Instruction& line : TapeOf(program, plan).instructions) {
      EXPECT_EQ(line.stream, kComputeStream);
      EXPECT_EQ(line.event, -1);
    }
}

// Whatever the plan: an event is recorded before it is waited for, and who copies takes nothing.
TEST(StreamsTest, EventsAreOfTheTapeAndCopiesTakeNoWorkspace) {
  std::mt19937 random(5);
  const Program program = Llama();
  for (int i = 0; i < 50; ++i) {
    const Tape tape = TapeOf(program, RandomPlan(program, 3, random, i % 2 == 1, kStashes));
    std::set<int16_t> recorded;
    for (const Instruction& line : tape.instructions) {
      if (line.kind == Instruction::Kind::kRecord) recorded.insert(line.event);
      if (line.kind == Instruction::Kind::kWait) {
        EXPECT_TRUE(recorded.contains(line.event));
      }
      if (line.stream != kComputeStream) {
        EXPECT_EQ(line.workspace, kNoSlot);
      }
    }
  }
}

// Were one of the waits not there, the interpreter would say so.
TEST(StreamsTest, AWaitThatIsMissingChangesTheGradients) {
  std::mt19937 random(7);
  const LlamaSizes sizes = {3, 8, 2, 1, 12, 11};
  const Program program = *BuildProgram(LlamaShape(sizes), FullMode());
  ExpectEachWaitForACopyMatters(program, *PinnedPlan(program, {{"*", Stash::kOffload}}), random);
}

TEST(StreamsTest, AnyOrderGivesTheGradientsOfKeep) {
  std::mt19937 random(11);
  const LlamaSizes sizes = {3, 8, 2, 1, 12, 11};
  for (const Program& program :
       {*BuildProgram(LlamaShape(sizes), FullMode()), *BuildProgram(LlamaShape(sizes), LoraMode()),
        *BuildProgram(FamilyShape("gemma2", sizes), FullMode()),
        *BuildProgram(T5Shape(false, {2, 8, 2, 2, 12, 11}, 1), FullMode())})
    ExpectAnyOrderOfCopiesGivesTheGradientsOfKeep(program, 12, random);
}

}  // namespace
}  // namespace snug::program
