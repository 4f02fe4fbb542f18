// Two halves with rows of their own, a border that every layer of the second reads, and tables that
// the layers of a half share: T5.
#include "worker/program/encoder_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/worker/program/models.h"
#include "tests/worker/program/plan_checks.h"
#include "worker/program/files/adapter_export.h"
#include "worker/program/files/safetensors.h"

namespace snug::program {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kPlans = 300;
const LlamaSizes kTiny = {4, 16, 4, 4, 12, 11};

TrainingMode LoraOf(std::vector<std::string> targets) {
  TrainingMode mode = LoraMode(std::move(targets));
  mode.adapter.rank = 2;
  mode.adapter.alpha = 1.0;
  return mode;
}

TEST(EncoderDecoderTest, EveryPlanGivesTheGradients) {
  std::mt19937 random(1);
  for (const bool gated : {false, true}) {
    for (const TrainingMode& mode : {FullMode(), LoraOf({"all-linear"}), LoraOf({"v", "wo"})}) {
      const auto program = BuildProgram(T5Shape(gated, kTiny, 2), mode);
      ASSERT_TRUE(program.ok()) << program.status();
      ExpectAnyPlanGivesTheGradientsOfKeep(*program, kPlans / 10, random);
      ExpectFiniteDifferences(*program, random);
    }
  }
}

TEST(EncoderDecoderTest, HalvesMayDifferInDepth) {
  std::mt19937 random(2);
  for (const int64_t decoder_layers : {1, 3}) {
    const Program program = *BuildProgram(T5Shape(false, kTiny, decoder_layers), FullMode());
    ExpectAnyPlanGivesTheGradientsOfKeep(program, kPlans, random);
    ExpectFiniteDifferences(program, random);
  }
}

TEST(EncoderDecoderTest, GradientsAreTheSameReleased) {
  std::mt19937 random(3);
  TrainingMode releasing = FullMode();
  releasing.release_gradients = true;
  for (const bool gated : {false, true}) {
    const ModelConfig config = T5Shape(gated, kTiny, 2);
    ExpectTheSameReleased(*BuildProgram(config, FullMode()), *BuildProgram(config, releasing), 20,
                          random);
  }
}

std::vector<std::string> KeysOf(const Program& program) {
  std::vector<std::string> keys;
  for (const Parameter& p : program.parameters) keys.push_back(p.key);
  return keys;
}

// Each once, though every layer reads the tables of biases, and three blocks that of tokens.
TEST(EncoderDecoderTest, KeysAreThoseOfTheFiles) {
  const LlamaSizes sizes = {2, 16, 4, 4, 12, 11};
  EXPECT_THAT(
      KeysOf(*BuildProgram(T5Shape(false, sizes, 1), FullMode())),
      ElementsAre("shared.weight", "encoder.block.0.layer.0.layer_norm.weight",
                  "encoder.block.0.layer.0.SelfAttention.q.weight",
                  "encoder.block.0.layer.0.SelfAttention.k.weight",
                  "encoder.block.0.layer.0.SelfAttention.v.weight",
                  "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                  "encoder.block.0.layer.0.SelfAttention.o.weight",
                  "encoder.block.0.layer.1.layer_norm.weight",
                  "encoder.block.0.layer.1.DenseReluDense.wi.weight",
                  "encoder.block.0.layer.1.DenseReluDense.wo.weight",
                  "encoder.final_layer_norm.weight", "decoder.block.0.layer.0.layer_norm.weight",
                  "decoder.block.0.layer.0.SelfAttention.q.weight",
                  "decoder.block.0.layer.0.SelfAttention.k.weight",
                  "decoder.block.0.layer.0.SelfAttention.v.weight",
                  "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                  "decoder.block.0.layer.0.SelfAttention.o.weight",
                  "decoder.block.0.layer.1.layer_norm.weight",
                  "decoder.block.0.layer.1.EncDecAttention.q.weight",
                  "decoder.block.0.layer.1.EncDecAttention.k.weight",
                  "decoder.block.0.layer.1.EncDecAttention.v.weight",
                  "decoder.block.0.layer.1.EncDecAttention.o.weight",
                  "decoder.block.0.layer.2.layer_norm.weight",
                  "decoder.block.0.layer.2.DenseReluDense.wi.weight",
                  "decoder.block.0.layer.2.DenseReluDense.wo.weight",
                  "decoder.final_layer_norm.weight"));
  const std::vector<std::string> gated = KeysOf(*BuildProgram(T5Shape(true, kTiny, 2), FullMode()));
  EXPECT_THAT(gated, Contains("lm_head.weight"));
  EXPECT_THAT(gated, Contains("decoder.block.1.layer.2.DenseReluDense.wi_1.weight"));
  EXPECT_EQ(std::set<std::string>(gated.begin(), gated.end()).size(), gated.size());
}

TEST(EncoderDecoderTest, AdaptersAreOfLinearModulesOfBothHalves) {
  const ModelConfig config = T5Shape(true, kTiny, 2);
  int downs = 0;
  for (const std::string& key : KeysOf(*BuildProgram(config, LoraOf({"all-linear"}))))
    downs += key.find("lora_A") != std::string::npos ? 1 : 0;
  EXPECT_EQ(downs, 2 * 7 + 2 * 11);
  const Program chosen = *BuildProgram(config, LoraOf({"EncDecAttention.k"}));
  EXPECT_THAT(KeysOf(chosen),
              Contains("base_model.model.decoder.block.1.layer.1.EncDecAttention.k.lora_A.weight"));
  const AdapterContents contents = *ContentsOf(AdapterTensorsOf(chosen));
  const std::string text =
      *AdapterConfigText(LoraOf({"EncDecAttention.k"}).adapter, "/base", contents, config);
  EXPECT_THAT(text, HasSubstr("\"task_type\": \"SEQ_2_SEQ_LM\""));
}

std::string RefusalOf(const std::vector<std::string>& targets,
                      const std::vector<std::string>& saved = {}) {
  TrainingMode mode = LoraOf(targets);
  mode.adapter.modules_to_save = saved;
  return std::string(BuildProgram(T5Shape(false, kTiny, 2), mode).status().message());
}

TEST(EncoderDecoderTest, TablesTakeNoAdapter) {
  EXPECT_THAT(RefusalOf({"shared"}), HasSubstr("lora.target_modules: no module 'shared'"));
  EXPECT_THAT(RefusalOf({"relative_attention_bias"}), HasSubstr("lora.target_modules: no module"));
  EXPECT_THAT(RefusalOf({"lm_head"}), HasSubstr("lm_head is one matrix with shared"));
  EXPECT_THAT(RefusalOf({"q"}, {"shared"}), HasSubstr("lora.modules_to_save: shared"));
  EXPECT_EQ(RefusalOf({"q"}, {"relative_attention_bias"}), "");
}

// Files may have the table under the names that it has in both halves, and a table of biases that
// transformers passes over.
TEST(EncoderDecoderTest, FilesMayHaveTheTableByItsOtherNames) {
  const Program program = *BuildProgram(T5Shape(false, kTiny, 2), FullMode());
  TensorIndex index;
  for (const Parameter& p : program.parameters) index[p.key] = {.dtype = "F32", .shape = p.shape};
  EXPECT_TRUE(CheckWeights(program, index).ok());
  for (const char* name :
       {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"})
    index[name] = {.dtype = "F32", .shape = {11, 16}};
  index["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = {
      .dtype = "F32", .shape = {6, 4}};
  EXPECT_TRUE(CheckWeights(program, index).ok()) << CheckWeights(program, index);
  index["lm_head.weight"].shape = {12, 16};
  EXPECT_THAT(std::string(CheckWeights(program, index).message()),
              HasSubstr("\"lm_head.weight\" is [12, 16], expected [11, 16]"));
  index["lm_head.weight"].shape = {11, 16};
  index["encoder.embed_tokens.weight"].dtype = "BF16";
  EXPECT_THAT(std::string(CheckWeights(program, index).message()), HasSubstr("is BF16, but"));
}

absl::StatusOr<ModelConfig> Parsed(const std::string& more,
                                   const std::string& architecture = "T5ForConditionalGeneration") {
  const char* halves = architecture == "T5ForConditionalGeneration" ? "true" : "false";
  return ParseModelConfig(
      absl::StrCat(R"({"model_type": "t5", "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2,
        "num_heads": 3, "vocab_size": 131, "is_encoder_decoder": )",
                   halves, R"(, "architectures": [")", architecture, R"("])", more, "}"),
      "config.json");
}

TEST(EncoderDecoderTest, ConfigsOfBothVersionsAreRead) {
  const auto first = Parsed("");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->layers, 4);
  EXPECT_EQ(first->decoder_layers, 2);
  EXPECT_EQ(first->distances, (Distances{32, 128}));
  EXPECT_EQ(first->activation, Activation::kRelu);
  EXPECT_TRUE(first->tied_embeddings && !first->gated_mlp);
  EXPECT_EQ(first->head_scale, 0.125);
  EXPECT_EQ(first->attention_scale(), 1.0);
  EXPECT_EQ(first->rotary_width(), 0);
  EXPECT_EQ(first->hidden_dropout, 0.1);
  EXPECT_EQ(first->task, Task::kSeq2SeqLm);
  EXPECT_EQ(ArchitectureOf(*first), "T5ForConditionalGeneration");
  const auto second = Parsed(R"(, "feed_forward_proj": "gated-gelu", "num_decoder_layers": 5,
    "tie_word_embeddings": false, "decoder_start_token_id": 3, "dropout_rate": 0.0)");
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->layers, 7);
  EXPECT_EQ(second->activation, Activation::kGeluTanh);
  EXPECT_TRUE(second->gated_mlp && !second->tied_embeddings);
  EXPECT_EQ(second->head_scale, 1.0);
  EXPECT_EQ(second->start_token, 3);
  // As transformers 5 writes a model of v1.1 whose head is the embedding.
  const auto third = Parsed(R"(, "tie_word_embeddings": true, "scale_decoder_outputs": false)");
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_TRUE(third->tied_embeddings);
  EXPECT_EQ(third->head_scale, 1.0);
}

// transformers leaves it in floats, and does not say so in the file.
TEST(EncoderDecoderTest, FilesInCodesHaveOneMatrixInFloats) {
  const auto read = Parsed(R"(, "quantization_config": {"load_in_8bit": true})");
  ASSERT_TRUE(read.ok()) << read.status();
  const auto program = BuildProgram(*read, LoraMode({"q"}));
  ASSERT_TRUE(program.ok()) << program.status();
  for (const Parameter& parameter : program->parameters) {
    if (parameter.adapter || !absl::StrContains(parameter.key, "DenseReluDense")) continue;
    const bool codes = !absl::EndsWith(parameter.key, ".wo.weight");
    EXPECT_EQ(parameter.quantization == Quantization::kInt8, codes) << parameter.key;
  }
}

TEST(EncoderDecoderTest, WhatIsNotComputedIsRefused) {
  for (const auto& [more, field] : {
           std::pair{R"(, "feed_forward_proj": "gated-mish")", "feed_forward_proj"},
           std::pair{R"(, "feed_forward_proj": 3)", "feed_forward_proj"},
           std::pair{R"(, "d_kv": 15)", "d_kv"},
           std::pair{R"(, "num_decoder_layers": 0)", "num_decoder_layers"},
           std::pair{R"(, "relative_attention_num_buckets": 3)", "relative_attention_num_buckets"},
           std::pair{R"(, "relative_attention_max_distance": 16)",
                     "relative_attention_max_distance"},
           std::pair{R"(, "decoder_start_token_id": 131)", "decoder_start_token_id"},
           std::pair{R"(, "quantization_config": {})", "quantization_config"},
       }) {
    const auto config = Parsed(more);
    ASSERT_FALSE(config.ok()) << more;
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(field));
  }
  EXPECT_THAT(std::string(Parsed("", "T5ForQuestionAnswering").status().message()),
              HasSubstr("architectures is [\"T5ForQuestionAnswering\"]; accepted: "));
}

TEST(EncoderDecoderTest, TheTaskIsTheModels) {
  ModelConfig config = T5Shape(false, kTiny, 2);
  EXPECT_TRUE(ChooseTask({}, config).ok());
  EXPECT_TRUE(ChooseTask({Task::kSeq2SeqLm, 0}, config).ok());
  EXPECT_THAT(std::string(ChooseTask({Task::kCausalLm, 0}, config).message()),
              HasSubstr("task: t5 is trained for seq2seq_lm or token_classification, not for "
                        "causal_lm"));
  EXPECT_THAT(std::string(ChooseTask({Task::kSeq2SeqLm, 3}, config).message()),
              HasSubstr("num_labels: is of task: sequence_classification"));
  ModelConfig llama = LlamaShape(kTiny);
  EXPECT_THAT(std::string(ChooseTask({Task::kSeq2SeqLm, 0}, llama).message()),
              HasSubstr("task: llama is trained for causal_lm, not for seq2seq_lm"));
}

// ---- its encoder alone --------------------------------------------------------------------------

ModelConfig EncoderOf(bool gated, const LlamaSizes& sizes = kTiny) {
  ModelConfig config = T5Shape(gated, sizes, 2);
  config.max_positions = 64;
  EXPECT_TRUE(ChooseTask({Task::kTokenClassification, 3}, config).ok());
  EXPECT_TRUE(CheckModelConfig(config).ok()) << CheckModelConfig(config);
  return config;
}

TEST(EncoderAloneTest, EveryPlanGivesTheGradients) {
  std::mt19937 random(4);
  for (const bool gated : {false, true}) {
    for (const TrainingMode& mode : {FullMode(), LoraOf({"all-linear"})}) {
      TrainingMode saving = mode;
      if (mode.lora) saving.adapter.modules_to_save = {"classifier"};
      const auto program = BuildProgram(EncoderOf(gated), saving);
      ASSERT_TRUE(program.ok()) << program.status();
      ExpectAnyPlanGivesTheGradientsOfKeep(*program, kPlans / 10, random);
      ExpectFiniteDifferences(*program, random);
    }
  }
}

TEST(EncoderAloneTest, KeysAreThoseOfItsClass) {
  const std::string block = "transformer.encoder.block.0.layer.";
  EXPECT_THAT(
      KeysOf(*BuildProgram(EncoderOf(false, {3, 16, 4, 4, 12, 11}), FullMode())),
      ElementsAre("transformer.shared.weight", block + "0.layer_norm.weight",
                  block + "0.SelfAttention.q.weight", block + "0.SelfAttention.k.weight",
                  block + "0.SelfAttention.v.weight",
                  block + "0.SelfAttention.relative_attention_bias.weight",
                  block + "0.SelfAttention.o.weight", block + "1.layer_norm.weight",
                  block + "1.DenseReluDense.wi.weight", block + "1.DenseReluDense.wo.weight",
                  "transformer.encoder.final_layer_norm.weight", "classifier.weight",
                  "classifier.bias"));
}

TEST(EncoderAloneTest, AdaptersAreOfLinearModules) {
  TrainingMode mode = LoraOf({"all-linear"});
  mode.adapter.modules_to_save = {"classifier"};
  const Program program = *BuildProgram(EncoderOf(true), mode);
  int downs = 0;
  for (const std::string& key : KeysOf(program))
    downs += key.find("lora_A") != std::string::npos ? 1 : 0;
  EXPECT_EQ(downs, 2 * 7);
  const std::string text = *AdapterConfigText(
      mode.adapter, "/base", *ContentsOf(AdapterTensorsOf(program)), program.config);
  EXPECT_THAT(text, HasSubstr("\"task_type\": \"TOKEN_CLS\""));
  for (const char* table : {"shared", "relative_attention_bias"}) {
    mode.adapter.target_modules = {table};
    EXPECT_THAT(std::string(BuildProgram(EncoderOf(true), mode).status().message()),
                HasSubstr("lora.target_modules: no module"));
  }
}

// Of files of the whole model what is the decoder's is passed over, and the head is drawn.
TEST(EncoderAloneTest, FilesMayHaveADecoder) {
  const Program whole = *BuildProgram(T5Shape(true, kTiny, 2), FullMode());
  const Program program = *BuildProgram(EncoderOf(true), FullMode());
  TensorIndex index;
  for (const Parameter& p : whole.parameters)
    index["transformer." + p.key] = {.dtype = "F32", .shape = p.shape};
  index["transformer.encoder.embed_tokens.weight"] = {.dtype = "F32", .shape = {11, 16}};
  EXPECT_TRUE(CheckBaseWeights(program, index).ok()) << CheckBaseWeights(program, index);
  index["transformer.other.weight"] = {.dtype = "F32", .shape = {1}};
  EXPECT_THAT(std::string(CheckBaseWeights(program, index).message()),
              HasSubstr("unexpected (1): \"transformer.other.weight\""));
}

TEST(EncoderAloneTest, FilesMayNameIt) {
  auto headless = Parsed("", "T5EncoderModel");
  ASSERT_TRUE(headless.ok()) << headless.status();
  EXPECT_TRUE(headless->new_head);
  EXPECT_EQ(headless->layers, 2);
  EXPECT_THAT(std::string(ChooseTask({Task::kSequenceClassification, 0}, *headless).message()),
              HasSubstr("task: t5 is trained for token_classification, not for"));
  ASSERT_TRUE(ChooseTask({std::nullopt, 5}, *headless).ok());
  EXPECT_EQ(headless->labels, 5);
  EXPECT_EQ(headless->head_spread, 1.0);
  auto own = Parsed(R"(, "classifier_dropout": 0.3,
    "id2label": {"0": "a", "1": "b", "2": "c"})",
                    "T5ForTokenClassification");
  ASSERT_TRUE(own.ok()) << own.status();
  ASSERT_TRUE(ChooseTask({}, *own).ok());
  EXPECT_FALSE(own->new_head);
  EXPECT_EQ(own->labels, 3);
  EXPECT_EQ(own->classifier_dropout, 0.3);
  EXPECT_EQ(ArchitectureOf(*own), "T5ForTokenClassification");
  EXPECT_THAT(std::string(ChooseTask({std::nullopt, 4}, *own).message()),
              HasSubstr("num_labels: 4, but the model's head has 3"));
}

// Of buckets the first half are for a distance each; what is as far as `farthest` is in the last.
TEST(EncoderDecoderTest, DistancesFallIntoBuckets) {
  EXPECT_THAT(BucketsOf({.buckets = 4, .farthest = 8}, /*causal=*/true),
              ElementsAre(0, 1, 2, 2, 3, 3, 3, 3, 3));
  EXPECT_THAT(BucketsOf({.buckets = 4, .farthest = 3}, /*causal=*/false),
              ElementsAre(3, 3, 3, 0, 1, 1, 1));
  const std::vector<int32_t> whole = BucketsOf({.buckets = 32, .farthest = 128}, true);
  EXPECT_EQ(whole.size(), 129u);
  EXPECT_EQ(whole[16], 16);
  EXPECT_EQ(whole[64], 26);
  EXPECT_EQ(whole[127], 31);
  EXPECT_EQ(whole[128], 31);
}

}  // namespace
}  // namespace snug::program
