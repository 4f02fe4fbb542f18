#include "worker/program/lower.h"

#include <cmath>
#include <random>

#include "gtest/gtest.h"
#include "tests/worker/program/interpreter.h"
#include "tests/worker/program/models.h"
#include "tests/worker/program/plan_checks.h"
#include "worker/program/planning/predict.h"
#include "worker/program/replay.h"

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

}  // namespace
}  // namespace snug::program
