// What runs of ops cost, by what bounds them, and what that takes on a machine.
#include <map>
#include <string>
#include <tuple>

#include "gtest/gtest.h"
#include "tests/worker/program/models.h"
#include "worker/program/lower.h"
#include "worker/program/planning/named_plan.h"
#include "worker/program/replay.h"
#include "worker/program/stages.h"

namespace snug::program {
namespace {

constexpr int64_t kTokens = 1024, kRowsOfPass = 256;

Tape TapeOf(const Program& program, const std::map<std::string, SiteStash>& patterns) {
  const LowerOptions options = {
      .key = {.tokens = kTokens, .documents = 2, .longest_document = kTokens / 2}};
  return *Lower(program, *PinnedPlan(program, patterns), options);
}

double Linear(const ModelConfig& config) {  // Elements of the matrices of all layers.
  const auto width = static_cast<double>(config.width), mlp = static_cast<double>(config.mlp_width);
  return static_cast<double>(config.layers) * (4.0 * width * width + 3.0 * width * mlp);
}

// Forward, and backward for inputs and for weights: each reads or writes its matrix once.
TEST(WorkTest, ProductsAreThoseOfTheMatrices) {
  const ModelConfig config = Llama125M();
  const Work work = ReplayTape(TapeOf(*BuildProgram(config, FullMode()), {})).work;
  const double head = static_cast<double>(config.width * config.vocabulary);
  EXPECT_DOUBLE_EQ(work[Limit::kProducts], 3.0 * 2.0 * kTokens * (Linear(config) + head));
  EXPECT_DOUBLE_EQ(work[Limit::kMatrices], 3.0 * sizeof(float) * (Linear(config) + head));
  EXPECT_EQ(work[Limit::kNarrow], 0.0);
  // 4 and 10 of each head's columns for each pair of a token and one that it sees.
  const double pairs = 0.5 * kTokens * (kTokens / 2 + 1);
  EXPECT_DOUBLE_EQ(work[Limit::kAttention],
                   14.0 * pairs * static_cast<double>(config.layers * config.width));
  EXPECT_EQ(work[Limit::kToHost], 0.0);
  EXPECT_EQ(work[Limit::kFromHost], 0.0);
}

TEST(WorkTest, AnAdaptersProductsAreNarrow) {
  const ModelConfig config = Llama125M();
  const Work work =
      ReplayTape(TapeOf(*BuildProgram(config, LoraMode({"q_proj"}, DType::kF32)), {})).work;
  const double head = static_cast<double>(config.width * config.vocabulary);
  // Frozen matrices have products for their inputs' gradients alone; the lowest layer needs q's.
  const double most = 2.0 * 2.0 * kTokens * (Linear(config) + head);
  EXPECT_LT(work[Limit::kProducts], most);
  EXPECT_GT(work[Limit::kProducts], 0.9 * most);
  EXPECT_GT(work[Limit::kNarrow], 0.0);
  EXPECT_LT(work[Limit::kNarrow], 0.05 * work[Limit::kProducts]);
}

// Every pass of a loop reads the matrices of its products anew.
TEST(WorkTest, PassesOfALoopReadMatricesAgain) {
  const Program program = *BuildProgram(Llama125M(), FullMode());
  const auto matrices = [](const Tape& tape) {
    std::map<std::tuple<int32_t, int32_t, Direction>, double> bytes;
    for (const Instruction& line : tape.instructions)
      if (line.op != nullptr && line.op->code == OpCode::kLinear)
        bytes[{line.block, line.op_index, line.direction}] = line.work[Limit::kMatrices];
    return bytes;
  };
  const auto kept = matrices(TapeOf(program, {}));
  int again = 0;
  for (const auto& [place, bytes] :
       matrices(TapeOf(program, {{"*", {Stash::kChunk, kRowsOfPass}}}))) {
    if (bytes == kept.at(place)) continue;
    EXPECT_DOUBLE_EQ(bytes, kept.at(place) * kTokens / kRowsOfPass);
    ++again;
  }
  EXPECT_GE(again,
            3 * 2 * static_cast<int>(program.config.layers));  // Gate, up and down, each way.
}

// A row whose length is not known yet counts as one patch, of which a later stage has none: there
// is no pass over it.
TEST(WorkTest, ALoopMayHaveNoRows) {
  const ModelConfig config = WindowedShape(4);
  const Program program = *BuildProgram(config, FullMode());
  const Plan chunked = *PinnedPlan(program, {{"*", {Stash::kChunk, 2}}});
  const TapeKey one = WithStages({.tokens = 1, .documents = 1, .longest_document = 1}, config);
  ASSERT_EQ(one.Of(Rows::kMerged1), 0);
  EXPECT_GT(SecondsOf(ReplayTape(*Lower(program, chunked, {.key = one})).work, Machine()), 0.0);
}

TEST(WorkTest, SecondsAreTheSumOverLimits) {
  Work work;
  work[Limit::kProducts] = 6.0;
  work[Limit::kPasses] = 10.0;
  work += work;
  Machine machine = {.rates = Rates::Of(3.0, 5.0)};
  EXPECT_DOUBLE_EQ(SecondsOf(work, machine), 12.0 / 3.0 + 20.0 / 5.0);
  machine.rates[Limit::kProducts] = 6.0;
  EXPECT_DOUBLE_EQ(SecondsOf(work, machine), 12.0 / 6.0 + 20.0 / 5.0);
}

// A line is started once, or once in each pass of its loop.
TEST(WorkTest, EveryPassOfALineIsARun) {
  const Program program = *BuildProgram(Llama125M(), FullMode());
  const Tape kept = TapeOf(program, {});
  // The head has a loop of one line, which runs in each pass; the loop itself is no run.
  EXPECT_EQ(ReplayTape(kept).work[Limit::kRuns],
            static_cast<double>(kept.instructions.size()) - 2.0 + kTokens / kHeadRowsOfCpu);
  const Tape chunked = TapeOf(program, {{"*", {Stash::kChunk, kRowsOfPass}}});
  double runs = 0.0;
  int32_t of_body = 0;  // Lines that are left of it.
  for (const Instruction& line : chunked.instructions) {
    const bool head = line.kind == Instruction::Kind::kLoop;
    const double passes = of_body-- > 0 ? kTokens / kRowsOfPass : 1.0;
    if (head) of_body = line.loop.lines;
    EXPECT_EQ(line.work[Limit::kRuns], head ? 0.0 : passes);
    runs += line.work[Limit::kRuns];
  }
  EXPECT_GT(runs, ReplayTape(kept).work[Limit::kRuns]);
  EXPECT_EQ(ReplayTape(chunked).work[Limit::kRuns], runs);
}

// On a CPU starting its runs is added to a line's work; on a GPU it shows where it takes longer.
TEST(WorkTest, AGpuHidesStartsBehindWork) {
  Work work;
  work[Limit::kPasses] = 10.0;
  work[Limit::kRuns] = 3.0;
  Machine cpu = {.rates = Rates::Of(1.0, 5.0)};
  EXPECT_DOUBLE_EQ(SecondsOf(work, cpu), 2.0);  // Nothing is known of starts.
  cpu.rates[Limit::kRuns] = 6.0;
  EXPECT_DOUBLE_EQ(SecondsOf(work, cpu), 2.0 + 0.5);
  Machine gpu = cpu;
  gpu.cpu = false;
  EXPECT_DOUBLE_EQ(SecondsOf(work, gpu), 2.0);
  gpu.rates[Limit::kRuns] = 1.0;
  EXPECT_DOUBLE_EQ(SecondsOf(work, gpu), 3.0);
}

// Where every line's work is nothing beside its start, a step takes what starting its lines takes.
TEST(WorkTest, AStepOfSmallRunsTakesItsStarts) {
  const Program program = *BuildProgram(LlamaShape({2, 32, 2, 2, 64, 64}), FullMode());
  const TapeKey few = {.tokens = 8, .documents = 1, .longest_document = 8};
  const Tape tape = *Lower(program, RecomputePlan(program, 0), {.key = few});
  const auto runs = static_cast<double>(tape.instructions.size()) - 1.0;  // But for the loop.
  for (const bool cpu : {true, false}) {
    Machine machine = {.cpu = cpu, .rates = Rates::Of(1e18, 1e18)};
    machine.rates[Limit::kRuns] = 1e5;
    EXPECT_NEAR(SecondsOf(tape, machine), 1e-5 * runs, 1e-9 * runs);
  }
}

}  // namespace
}  // namespace snug::program
