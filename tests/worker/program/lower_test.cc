#include "worker/program/lower.h"

#include <cmath>
#include <random>

#include "gtest/gtest.h"
#include "tests/worker/program/interpreter.h"
#include "tests/worker/program/models.h"
#include "worker/program/predict.h"
#include "worker/program/replay.h"

namespace snug::program {
namespace {

ModelConfig TinyConfig(const std::string& family = "llama") {
  ModelConfig config = FamilyShape(family, {3, 8, 4, 2, 12, 11});
  if (family == "llama") config = LlamaShape({3, 8, 4, 2, 12, 11});
  config.head_width = 4;  // Not C / H.
  return config;
}

std::vector<std::vector<double>> RandomParameters(const Program& program, std::mt19937& random) {
  std::normal_distribution<double> normal(0.0, 0.4);
  std::vector<std::vector<double>> parameters;
  for (const Parameter& parameter : program.parameters) {
    parameters.emplace_back(static_cast<size_t>(parameter.elements()));
    for (double& x : parameters.back()) x = normal(random) + (parameter.decay ? 0.0 : 1.0);
  }
  return parameters;
}

ToyBatch MixedBatch(std::mt19937& random) {
  ToyBatch batch;
  batch.document_lengths = {5, 1, 3};
  for (int n = 0; n < 9; ++n) {
    batch.ids.push_back(static_cast<int>(random() % 11));
    batch.labels.push_back(n % 3 == 0 ? -1 : static_cast<int>(random() % 11));
  }
  return batch;
}

LowerOptions OptionsFor(const ToyBatch& batch) {
  LowerOptions options;
  options.key = {.tokens = static_cast<int64_t>(batch.ids.size()),
                 .documents = static_cast<int64_t>(batch.document_lengths.size()),
                 .longest_document = 5};
  return options;
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
    const auto parameters = RandomParameters(program, random);
    const ToyBatch batch = MixedBatch(random);
    Interpreter keep(program, parameters), other(program, parameters);
    const Tape keep_tape = *Lower(program, RecomputePlan(program, 0), OptionsFor(batch));
    const double loss = keep.Run(keep_tape, batch);
    ASSERT_TRUE(std::isfinite(loss));
    for (int i = 0; i < 200; ++i) {
      const absl::StatusOr<Tape> tape = Lower(
          program, RandomPlan(program, 3, random, /*segments=*/i % 2 == 1), OptionsFor(batch));
      ASSERT_TRUE(tape.ok()) << tape.status();
      ASSERT_EQ(other.Run(*tape, batch), loss) << "plan " << i;
      ASSERT_EQ(other.gradients(), keep.gradients()) << "plan " << i;
    }
    for (int k = 0; k <= 3; ++k) {
      const Tape tape = *Lower(program, RecomputePlan(program, k), OptionsFor(batch));
      ASSERT_EQ(other.Run(tape, batch), loss);
      ASSERT_EQ(other.gradients(), keep.gradients()) << "recompute " << k;
    }
  }
}

// The tape is a program for the gradient: central differences of its own loss agree.
TEST(LowerTest, GradientsAgreeWithFiniteDifferences) {
  std::mt19937 random(11);
  for (const auto& [family, mode] : Models()) {
    SCOPED_TRACE(family);
    const Program program = *BuildProgram(TinyConfig(family), mode);
    auto parameters = RandomParameters(program, random);
    const ToyBatch batch = MixedBatch(random);
    LowerOptions options = OptionsFor(batch);
    const Tape step = *Lower(program, RandomPlan(program, 3, random), options);
    options.training = false;
    const Tape forward = *Lower(program, RecomputePlan(program, 0), options);
    Interpreter interpreter(program, parameters);
    const double loss = interpreter.Run(step, batch);
    const auto gradients = interpreter.gradients();
    EXPECT_EQ(interpreter.Run(forward, batch), loss);
    for (size_t p = 0; p < parameters.size(); ++p) {
      if (!program.parameters[p].trainable) continue;
      const size_t i = random() % parameters[p].size();
      // A larger step would show the third derivative: a norm of a vector near zero bends sharply.
      const double kept = parameters[p][i], h = 1e-6;
      parameters[p][i] = kept + h;
      const double above = interpreter.Run(forward, batch);
      parameters[p][i] = kept - h;
      const double below = interpreter.Run(forward, batch);
      parameters[p][i] = kept;
      EXPECT_NEAR(gradients[p][i], (above - below) / (2 * h),
                  1e-6 * (1 + std::abs(gradients[p][i])))
          << program.parameters[p].key;
    }
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

}  // namespace
}  // namespace snug::program
