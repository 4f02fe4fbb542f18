// A tape's lives against what the ops really read. A value whose bytes are spoilt just before the
// last instruction that names it must spoil the results: were it not read there, it would have been
// kept for too long. Only what an op gives beside its result (r, lse) may have no reader.
// (SeparateMemory shows the rest: a read before birth or after death reads NaN, a slot that is too
// small has its guards overwritten, one that is too large keeps poison.)
#include <algorithm>
#include <cstring>
#include <utility>

#include "gtest/gtest.h"
#include "tests/worker/execute/toy_run.h"
#include "tests/worker/program/models.h"

namespace snug::execute {
namespace {

using program::DType;
using program::Instruction;
using program::Plan;
using program::Slot;
using program::Tape;
using program::TrainingMode;

// Overwrites `bytes` at `address` with NaN before the op call number `call`.
struct Spoiler {
  int64_t call = -1;
  void* address = nullptr;
  size_t bytes = 0;
  int64_t calls = 0;  // So far.
};
Spoiler spoiler;  // The functions of ops are plain pointers.

template <size_t kCode, bool kForward>
void Spoiling(const OpRun& run) {
  if (spoiler.calls++ == spoiler.call) std::memset(spoiler.address, 0xFF, spoiler.bytes);
  const OpFunctions& functions = OpFunctionsOfKernels()[kCode];
  (kForward ? functions.forward : functions.backward)(run);
}

template <size_t... kCodes>
OpFunctionTable SpoilingFunctions(std::index_sequence<kCodes...>) {
  return {{{&Spoiling<kCodes, true>, &Spoiling<kCodes, false>}...}};
}

class LivesOfTape {
 public:
  LivesOfTape(ToyRun& run, const Tape& tape)
      : run_(run),
        tape_(tape),
        memory_(*ArenaMemory::Allocate(TestDevice(), tape.arena_bytes, tape.host_bytes)),
        executor_(run.parameters(), TestDevice()) {
    executor_.UseFunctions(SpoilingTable());
    clean_ = Results();
  }

  bool ReadsAtItsLastInstruction(int32_t s) {
    const Slot& slot = tape_.slots[static_cast<size_t>(s)];
    spoiler = {.call = CallOf(slot.last),
               .address = memory_.At(tape_, s),
               .bytes = static_cast<size_t>(slot.bytes)};
    return !SameBits(Results(), clean_);
  }

 private:
  // Calls of ops are counted: a line that runs none is left out, and a loop has one pass here.
  int64_t CallOf(int32_t line) const {
    const auto begin = tape_.instructions.begin();
    return std::count_if(begin, begin + line, [](const Instruction& before) {
      return before.kind == Instruction::Kind::kRun;
    });
  }
  static const OpFunctionTable& SpoilingTable() {
    static const OpFunctionTable table =
        SpoilingFunctions(std::make_index_sequence<program::kOpCodes>());
    return table;
  }
  std::vector<float> Results() {
    spoiler.calls = 0;
    const auto loss = run_.Run(tape_, memory_, executor_);
    spoiler.call = -1;
    EXPECT_TRUE(loss.ok()) << loss.status();
    std::vector<float> results = run_.Gradients();
    results.push_back(static_cast<float>(*loss));
    return results;
  }
  static bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  ToyRun& run_;
  const Tape& tape_;
  ArenaMemory memory_;
  Executor executor_;
  std::vector<float> clean_;
};

std::vector<TrainingMode> Modes() {
  TrainingMode dropout = program::LoraMode();
  dropout.adapter.rank = 4;
  dropout.adapter.dropout = 0.25;
  return {program::FullMode(),
          dropout,
          program::LoraMode({"q_proj", "v_proj"}),
          program::LoraMode({"all-linear"}, DType::kBF16),
          program::FullMode(DType::kBF16),
          program::LoraMode({"lm_head", "embed_tokens", "v_proj"}),
          program::LoraMode({"lm_head", "embed_tokens"}, DType::kBF16)};
}

void ExpectReadAtTheirEnd(ToyRun run, std::mt19937& random) {
  const program::Program& program = run.program();
  const int layers = static_cast<int>(program.config.layers);
  for (const Plan& plan : {RecomputePlan(program, 0), RecomputePlan(program, 1),
                           RecomputePlan(program, layers), RandomPlan(program, 3, random)}) {
    const Tape tape = run.Lower(plan);
    LivesOfTape lives(run, tape);
    for (size_t s = 0; s < tape.slots.size(); ++s) {
      const Slot& slot = tape.slots[s];
      if (slot.region == program::Region::kWorkspace) continue;
      const Instruction& line = tape.instructions[static_cast<size_t>(slot.last)];
      const std::string where = plan.name + ": slot " + std::to_string(s) + " of " +
                                std::to_string(slot.bytes) + " bytes at " + line.op->name +
                                " of block " + std::to_string(line.block);
      if (slot.first == slot.last && line.operands.out[1].slot == static_cast<int32_t>(s)) continue;
      EXPECT_TRUE(lives.ReadsAtItsLastInstruction(static_cast<int32_t>(s))) << where;
    }
  }
}

TEST(LifetimesTest, EveryValueIsReadByTheLastInstructionThatNamesIt) {
  std::mt19937 random(8);
  for (const TrainingMode& mode : Modes()) {
    const auto config = program::LlamaShape({3, 32, 4, 2, 48, 61});
    ExpectReadAtTheirEnd(ToyRun(*BuildProgram(config, mode), {7, 1, 12}), random);
  }
}

TEST(LifetimesTest, SoInEveryFamily) {
  std::mt19937 random(9);
  for (const std::string& family : program::FamilyNames()) {
    SCOPED_TRACE(family);
    const auto config = program::FamilyShape(family, {2, 32, 4, 2, 48, 61});
    for (const TrainingMode& mode : {program::FullMode(), program::LoraMode()}) {
      ExpectReadAtTheirEnd(ToyRun(*BuildProgram(config, mode), {7, 1, 12}), random);
    }
  }
}

}  // namespace
}  // namespace snug::execute
