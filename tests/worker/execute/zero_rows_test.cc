// A batch in which no row is trained: its loss is a sum over no rows, so that the loss and every
// gradient are zero. What the gradients held before is NaN wherever the tape begins one (ToyRun),
// so that one which nobody begins shows.
#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/execute/toy_run.h"
#include "tests/worker/program/models.h"

namespace snug::execute {
namespace {

using program::Instruction;
using program::LlamaSizes;
using program::Plan;
using program::Program;
using program::Tape;
using program::TrainingMode;
using ::testing::Each;

constexpr LlamaSizes kDecoder = {2, 32, 4, 2, 72, 61}, kEncoder = {2, 32, 4, 4, 72, 61};

ToyRun Untrained(const Program& program) {
  ToyRun run(program, {7, 1, 12});
  run.TrainNothing();
  return run;
}

void ExpectZeros(ToyRun& run, const Plan& plan) {
  const auto loss = run.RunInArena(run.Lower(plan), TestDevice());
  ASSERT_TRUE(loss.ok()) << loss.status();
  EXPECT_EQ(*loss, 0.0);
  ASSERT_FALSE(run.Gradients().empty());
  EXPECT_THAT(run.Gradients(), Each(0.0f));
}

// The head's one pass has no rows: its matrix, apart from the table of tokens or one with it, and
// an adapter of it.
TEST(ZeroRowsTest, AHeadWithoutRowsBeginsItsGradients) {
  for (const auto& [config, mode] :
       {std::pair(program::LlamaShape(kDecoder), program::FullMode()),
        std::pair(program::LlamaShape(kDecoder), program::LoraMode({"lm_head"})),
        std::pair(program::FamilyShape("gemma2", kDecoder), program::FullMode())}) {
    SCOPED_TRACE(config.model_type);
    ToyRun run = Untrained(*BuildProgram(config, mode));
    ExpectZeros(run, RecomputePlan(run.program(), 0));
  }
}

// The head of masked tokens has ops of the trained rows alone, whose products write nothing.
TEST(ZeroRowsTest, OpsWithoutRowsBeginTheirGradients) {
  for (const TrainingMode& mode : {program::FullMode(), program::LoraMode()}) {
    for (const char* family : {"bert", "roberta", "distilbert"}) {
      SCOPED_TRACE(family);
      ToyRun run = Untrained(*BuildProgram(program::MaskedShape(family, kEncoder), mode));
      ExpectZeros(run, RecomputePlan(run.program(), 0));
    }
  }
}

// Plans decide of layers alone: the head becomes one.
Program WithHeadAsLayer(Program program) {
  program.blocks.back().layer = static_cast<int>(program.config.layers);
  ++program.config.layers;
  return program;
}

// But for the head's own, which has one line.
bool BeginsGradientsInALoopOverTrainedRows(const Tape& tape) {
  for (size_t t = 0; t < tape.instructions.size(); ++t) {
    const Instruction& head = tape.instructions[t];
    if (head.loop.lines < 2 || head.loop.rows != program::Rows::kTrained) continue;
    const auto body = tape.instructions.begin() + static_cast<std::ptrdiff_t>(t) + 1;
    if (std::any_of(body, body + head.loop.lines,
                    [](const Instruction& line) { return line.begins != 0; }))
      return true;
  }
  return false;
}

// A loop over no rows has one pass, over none.
TEST(ZeroRowsTest, ALoopWithoutRowsBeginsItsGradients) {
  for (const TrainingMode& mode : {program::FullMode(), program::LoraMode()}) {
    ToyRun run =
        Untrained(WithHeadAsLayer(*BuildProgram(program::MaskedShape("roberta", kEncoder), mode)));
    const Plan plan = *program::PinnedPlan(
        run.program(), {{"*", program::SiteStash(program::Stash::kChunk, /*rows=*/5)}});
    ASSERT_TRUE(BeginsGradientsInALoopOverTrainedRows(run.Lower(plan)));
    ExpectZeros(run, plan);
  }
}

// Modules that read one value share a product, and each adds its rows of the result to what its
// gradient holds of the micro-batches before. Of no rows there is no product: what the op's
// workspace holds is of use to nobody.
TEST(ZeroRowsTest, ModulesThatShareAProductOfNoRowsAddNothing) {
  constexpr int64_t kRank = 4, kWidth = 8;
  constexpr float kBefore = 7.0f;
  float nothing = 0.0f;
  std::array<std::vector<float>, 2> values, gradients;
  program::Op op;
  op.code = program::OpCode::kLoraDown;
  op.name = "down";
  const Batch batch = {};
  OpRun run;
  run.op = &op;
  run.batch = &batch;
  run.device = &TestDevice();
  run.in[0] = {&nothing, 0, kWidth};
  run.d_out[0] = {&nothing, 0, 2 * kRank};
  for (size_t i = 0; i < values.size(); ++i) {
    values[i].assign(kRank * kWidth, 1.0f);
    gradients[i].assign(kRank * kWidth, kBefore);
    run.parameters[i] = {{values[i].data(), kRank, kWidth}, {gradients[i].data(), kRank, kWidth}};
  }
  alignas(program::kAlignment) std::array<float, 2 * kRank * kWidth> workspace;
  workspace.fill(std::numeric_limits<float>::quiet_NaN());
  TrackingAllocator& allocator = TestDevice().allocator();
  allocator.OpenSlice({.base = reinterpret_cast<char*>(workspace.data()),
                       .bytes = static_cast<int64_t>(sizeof(workspace)),
                       .op = op.name.c_str()});
  OpFunctionsOfKernels()[static_cast<size_t>(op.code)].backward(run);
  allocator.CloseSlice();
  for (const std::vector<float>& gradient : gradients) EXPECT_THAT(gradient, Each(kBefore));
}

}  // namespace
}  // namespace snug::execute
