// What a layer keeps from forward to backward, in the unit in which LowMemoryBP counts it: one
// value of the model's width in 16 bits. The published accounts, from our tapes.
//
// Two terms of the authors' account are theirs alone, and are added here by name: their norms keep
// their input, in fp32 (two units, where ours keep x-hat, one), and their projection keeps a copy
// of attention's output. Their SiLU and its product are separate ops; ours is one.
#include <cstdint>
#include <map>
#include <string>

#include "gtest/gtest.h"
#include "tests/worker/program/models.h"
#include "worker/program/lower.h"

namespace snug::program {
namespace {

using Patterns = std::map<std::string, SiteStash>;

const Patterns kKeep = {{"*", Stash::kKeep}};
const Patterns kSharedNorms = {{"*norm*.out", Stash::kRecompute}};
const Patterns kTwoBitGelu = {{"*norm*.out", Stash::kRecompute}, {"*mlp.up", Stash::kTwoBit}};
const Patterns kTwoBitSilu = {{"*norm*.out", Stash::kRecompute}, {"*mlp.gate", Stash::kTwoBit}};

constexpr int64_t kDocuments = 16;
constexpr double kTwoInputsInFp32 = 2 * (2 - 1), kCopiedOutput = 1;  // Of the authors' account.

// ViT-B/16 of 224 x 224, without dropout.
ModelConfig VitBase() {
  ModelConfig config = ImageShape("vit", {4, 768, 12, 12, 3072, 1});
  config.image_size = 224;
  config.patch_size = 16;
  config.max_positions = config.tokens_of_image();
  config.hidden_dropout = config.classifier_dropout = 0.0;
  return config;
}

ModelConfig Llama13B() { return LlamaShape({4, 5120, 40, 40, 13824, 32000}); }

int64_t ArenaOf(const ModelConfig& config, const TrainingMode& mode, const Patterns& patterns) {
  const Program program = *BuildProgram(config, mode);
  const int64_t rows = config.encoder ? config.tokens_of_image() : 1024;
  LowerOptions options;
  options.key = {.tokens = kDocuments * rows, .documents = kDocuments, .longest_document = rows};
  return Lower(program, *PinnedPlan(program, patterns), options)->arena_bytes;
}

// Of one layer: what the arena grows by with each that is added. Less what is no value of the
// model's width: one fp32 number a row for each norm and each head (r, log-sum-exp), and `aside`.
double Units(ModelConfig config, const TrainingMode& mode, const Patterns& patterns,
             int64_t aside = 0) {
  const int64_t few = ArenaOf(config, mode, patterns), layers = config.layers;
  config.layers *= 2;
  const int64_t rows = kDocuments * (config.encoder ? config.tokens_of_image() : 1024);
  const int64_t a_row = (ArenaOf(config, mode, patterns) - few) / layers / rows;
  return static_cast<double>(a_row - 4 * (2 + config.heads) - aside) /
         static_cast<double>(2 * config.width);
}

TEST(UnitsTest, SharedNormsTakeTwoUnitsOfVit) {
  const TrainingMode full = FullMode(DType::kBF16);
  const double keep = Units(VitBase(), full, kKeep);
  const double shared = Units(VitBase(), full, kSharedNorms);
  EXPECT_DOUBLE_EQ(keep, 16.0);
  EXPECT_DOUBLE_EQ(shared, 14.0);
  EXPECT_DOUBLE_EQ(Units(VitBase(), full, kTwoBitGelu), 10.5);
  EXPECT_DOUBLE_EQ(keep + kTwoInputsInFp32 + kCopiedOutput, 19.0);
  EXPECT_DOUBLE_EQ(shared + kCopiedOutput, 15.0);
  EXPECT_DOUBLE_EQ(Units(VitBase(), full, kTwoBitGelu) + kCopiedOutput, 11.5);
}

TEST(UnitsTest, AdaptersOfQueryAndValueOfVit) {
  TrainingMode lora = LoraMode({"q_proj", "v_proj"}, DType::kBF16);
  lora.adapter.modules_to_save = {"classifier"};
  const int64_t za = 2 * lora.adapter.rank * 4;  // Of both adapters, in fp32.
  EXPECT_DOUBLE_EQ(Units(VitBase(), lora, kKeep, za), 11.0);
  EXPECT_DOUBLE_EQ(Units(VitBase(), lora, kSharedNorms, za), 10.0);
  EXPECT_DOUBLE_EQ(Units(VitBase(), lora, kTwoBitGelu, za), 6.5);
}

TEST(UnitsTest, SharedNormsTakeTwoUnitsOfLlama) {
  constexpr double kSilu = 13824.0 / 5120.0;  // The authors'; 2.7.
  const TrainingMode full = FullMode(DType::kBF16);
  const double keep = Units(Llama13B(), full, kKeep) + kSilu;
  const double shared = Units(Llama13B(), full, kSharedNorms) + kSilu;
  EXPECT_DOUBLE_EQ(keep, 18.8);
  EXPECT_DOUBLE_EQ(shared, 16.8);
  EXPECT_DOUBLE_EQ(keep + kTwoInputsInFp32 + kCopiedOutput, 21.8);
  EXPECT_DOUBLE_EQ(shared + kCopiedOutput, 17.8);
  // Codes instead of the gate, and SiLU's result beside them, which is kept as it is in theirs.
  const double two_bit = Units(Llama13B(), full, kTwoBitSilu);
  EXPECT_DOUBLE_EQ(two_bit, 14.4375);
  EXPECT_DOUBLE_EQ(two_bit + kCopiedOutput, 15.4375);
}

}  // namespace
}  // namespace snug::program
