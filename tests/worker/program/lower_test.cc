#include "worker/program/lower.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "tests/worker/program/interpreter.h"
#include "tests/worker/program/models.h"
#include "tests/worker/program/plan_checks.h"
#include "worker/program/planning/predict.h"
#include "worker/program/replay.h"
#include "worker/program/tape_text.h"

namespace snug::program {
namespace {

ModelConfig TinyConfig(const std::string& family = "llama") {
  ModelConfig config = FamilyShape(family, {3, 8, 4, 2, 12, 11});
  if (family == "llama") config = LlamaShape({3, 8, 4, 2, 12, 11});
  config.head_width = 4;  // Not C / H.
  return config;
}

struct Model {
  std::string family;
  TrainingMode mode;
};

// Every family in full and with adapters of everything; more ways to adapt a Llama.
std::vector<Model> Models() {
  std::vector<Model> models = {{"llama", FullMode()},
                               {"llama", LoraMode({"all-linear"})},
                               {"llama", LoraMode({"q_proj", "v_proj"})},
                               {"llama", LoraMode({"layers.1.mlp.down_proj"})},
                               {"llama", LoraMode({"lm_head"})},
                               {"llama", LoraMode({"lm_head", "embed_tokens", "up_proj"})}};
  for (const std::string& family : FamilyNames()) {
    models.push_back({family, FullMode()});
    models.push_back({family, LoraMode({"all-linear"})});
  }
  return models;
}

// Whatever is run again, the gradients are those of keeping everything, to the bit, and nothing
// reads outside a lifetime.
TEST(LowerTest, RandomPlansGiveBitwiseTheGradientsOfKeep) {
  std::mt19937 random(7);
  for (const auto& [family, mode] : Models()) {
    SCOPED_TRACE(family);
    const Program program = *BuildProgram(TinyConfig(family), mode);
    ExpectAnyPlanGivesTheGradientsOfKeep(program, 200, random);
  }
}

// A gradient that goes as soon as its weight is updated is the one that was kept, and where nobody
// keeps it the static bytes are gone.
TEST(LowerTest, ReleasedGradientsAreThoseOfKept) {
  std::mt19937 random(13);
  for (const auto& [family, mode] : Models()) {
    SCOPED_TRACE(family);
    TrainingMode releasing = mode;
    releasing.release_gradients = true;
    const Program kept = *BuildProgram(TinyConfig(family), mode);
    const Program released = *BuildProgram(TinyConfig(family), releasing);
    ExpectTheSameReleased(kept, released, 20, random);
    int64_t held = 0;
    for (const Parameter& parameter : released.parameters)
      held += parameter.trainable && !parameter.released ? Aligned(parameter.elements() * 4) : 0;
    EXPECT_EQ(StaticComponents(released, {}, {}, 0).gradients, held);
    const bool tied_and_full = kept.config.tied_embeddings && !mode.lora;
    EXPECT_EQ(held > 0, tied_and_full);
  }
}

// The tape is a program for the gradient: central differences of its own loss agree.
TEST(LowerTest, GradientsAgreeWithFiniteDifferences) {
  std::mt19937 random(11);
  for (const auto& [family, mode] : Models()) {
    SCOPED_TRACE(family);
    const Program program = *BuildProgram(TinyConfig(family), mode);
    ExpectFiniteDifferences(program, random);
  }
}

// However many layers: embedding, head, and a type for each kind of layer and set of adapters.
TEST(LowerTest, LayersShareABlockTypeByWhetherTheySlideAndWhatIsAdapted) {
  const auto types = [](const std::string& family, const TrainingMode& mode) {
    return BuildProgram(FamilyShape(family, {6, 8, 4, 2, 12, 11}), mode)->types.size();
  };
  EXPECT_EQ(types("mistral", FullMode()), 3);
  EXPECT_EQ(types("gemma3", FullMode()), 4);
  EXPECT_EQ(types("gemma3", LoraMode()), 4);
  EXPECT_EQ(types("gemma3", LoraMode({"layers.0.mlp.up_proj"})), 5);
}

// Nothing but keep is as large, and each block that is run again makes it smaller.
TEST(LowerTest, RecomputeShrinksTheArena) {
  ModelConfig config = TinyConfig();
  config.layers = 8;
  config.width = config.mlp_width = 64;
  config.vocabulary = 32;
  const Program program = *BuildProgram(config, FullMode());
  LowerOptions options;
  options.key = {.tokens = 512, .documents = 2, .longest_document = 256};
  int64_t before = INT64_MAX;
  for (int k = 0; k < 8; ++k) {
    const int64_t arena = Lower(program, RecomputePlan(program, k), options)->arena_bytes;
    EXPECT_LT(arena, before) << k;
    before = arena;
  }
}

// A CPU's are as they were; a GPU's are measured, or the usual ones of a GPU. Who says how many has
// them on either.
TEST(LowerTest, RowsOfTheHeadAreTheMachines) {
  const Program program = *BuildProgram(LlamaShape({2, 64, 4, 2, 96, 500}), FullMode());
  const auto rows_of_pass = [&](const Machine& machine, int32_t head_rows) {
    const LowerOptions options = {.key = {.tokens = 4096, .documents = 2, .longest_document = 2048},
                                  .machine = machine,
                                  .head_rows = head_rows};
    const Tape tape = *Lower(program, RecomputePlan(program, 0), options);
    for (const Instruction& line : tape.instructions)
      if (line.kind == Instruction::Kind::kLoop) return line.loop.rows_of_pass;
    return int64_t{0};
  };
  const Machine cpu, measured_cpu = {.head_rows = 2048};
  const Machine gpu = {.cpu = false}, measured = {.cpu = false, .head_rows = 2048};
  EXPECT_EQ(rows_of_pass(cpu, 0), 256);
  EXPECT_EQ(rows_of_pass(measured_cpu, 0), 256);
  EXPECT_EQ(rows_of_pass(gpu, 0), 1024);
  EXPECT_EQ(rows_of_pass(measured, 0), 2048);
  for (const Machine& machine : {cpu, gpu, measured}) EXPECT_EQ(rows_of_pass(machine, 64), 64);
}

// Each pass reads the head's matrix and adds to its gradient, where that is wanted: a GPU has few,
// and the time of what it reads is counted, so that plans of fewer rows are slower ones.
TEST(LowerTest, AGpuReadsTheHeadsMatrixInFewPasses) {
  const ModelConfig config = LlamaShape({2, 64, 4, 2, 96, 500});
  const Program program = *BuildProgram(config, FullMode());
  LowerOptions options;
  options.key = {.tokens = 8192, .documents = 4, .longest_document = 2048};
  const auto matrix_bytes = [&](const Machine& machine) {
    options.machine = machine;
    const Tape tape = *Lower(program, RecomputePlan(program, 0), options);
    for (const Instruction& line : tape.instructions)
      if (line.op != nullptr && line.op->code == OpCode::kHeadLoss)
        return line.work[Limit::kMatrices];
    return 0.0;
  };
  const double of_a_pass = 3.0 * sizeof(float) * 64 * 500;  // W twice, and its gradient.
  EXPECT_DOUBLE_EQ(matrix_bytes({}), of_a_pass);            // A CPU computes longer by far.
  EXPECT_DOUBLE_EQ(matrix_bytes({.cpu = false}), 8 * of_a_pass);
  EXPECT_DOUBLE_EQ(matrix_bytes({.cpu = false, .head_rows = 2048}), 4 * of_a_pass);
}

// By what a row takes at 256, 512, 1,024 and 2,048 rows: what is within 3 % of the best is as good.
TEST(LowerTest, TheFewestRowsAreChosenThatAreNearlyTheBest) {
  EXPECT_EQ(FewestFastHeadRows({1.0, 1.0, 1.0, 1.0}), 256);
  EXPECT_EQ(FewestFastHeadRows({1.5, 1.02, 1.01, 1.0}), 512);
  EXPECT_EQ(FewestFastHeadRows({1.5, 1.04, 1.02, 1.0}), 1024);
  EXPECT_EQ(FewestFastHeadRows({1.5, 1.2, 1.04, 1.0}), 2048);
  EXPECT_EQ(FewestFastHeadRows({1.0, 0.9, 1.2, 1.3}), 512);
  EXPECT_TRUE(IsHeadRowChoice(1024));
  EXPECT_FALSE(IsHeadRowChoice(1025));
}

// Of logits those of a pass are there, beside the rows of z that they are made of; z's gradient
// takes the place of z.
TEST(LowerTest, TheHeadTakesTheLossInPasses) {
  const ModelConfig config = LlamaShape({2, 64, 4, 2, 96, 5000});
  const Program program = *BuildProgram(config, FullMode());
  LowerOptions options;
  options.key = {.tokens = 512, .documents = 2, .longest_document = 256};
  for (const int32_t rows : {16, 100, 512, 4096}) {
    options.head_rows = rows;
    const Tape tape = *Lower(program, RecomputePlan(program, 0), options);
    const auto loop =
        std::find_if(tape.instructions.begin(), tape.instructions.end(),
                     [](const auto& line) { return line.kind == Instruction::Kind::kLoop; });
    ASSERT_NE(loop, tape.instructions.end());
    EXPECT_EQ(loop->loop.lines, 1);
    EXPECT_EQ(loop->loop.rows, Rows::kTrained);
    EXPECT_EQ(loop->loop.rows_of_pass, std::min<int64_t>(rows, 512));
    const Instruction& head = *std::next(loop);
    EXPECT_EQ(head.op->code, OpCode::kHeadLoss);
    EXPECT_EQ(head.operands.d_in[0].slot, head.operands.in[0].slot);
    EXPECT_EQ(tape.slots[static_cast<size_t>(head.workspace)].bytes,
              std::min<int64_t>(rows, 512) * (64 + 5000) * 4);
  }
}

// What evaluates and answers is priced once for all plans.
TEST(LowerTest, ForwardAloneIsTheSameUnderEveryPlan) {
  const Program program = *BuildProgram(LlamaShape({2, 64, 4, 2, 256, 50}), FullMode());
  const LowerOptions options = {.key = {.tokens = 512, .documents = 1, .longest_document = 512},
                                .training = false};
  const std::string keep = TapeText(*Lower(program, RecomputePlan(program, 0), options));
  for (const Stash stash : {Stash::kRecompute, Stash::kOffload, Stash::kInt8, Stash::kChunk})
    EXPECT_EQ(TapeText(*Lower(program, *PinnedPlan(program, {{"*", stash}}), options)), keep);
}

}  // namespace
}  // namespace snug::program
