// A head of masked tokens: which models get it, that every plan gives the gradients that finite
// differences say, and how much room its rows have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/worker/program/models.h"
#include "tests/worker/program/plan_checks.h"
#include "worker/program/lower.h"

namespace snug::program {
namespace {

using ::testing::HasSubstr;

constexpr int kPlans = 30;
const LlamaSizes kTiny = {3, 16, 4, 4, 12, 11};

std::string ErrorOf(const TaskChoice& choice, ModelConfig config) {
  return std::string(ChooseTask(choice, config).message());
}

absl::StatusOr<ModelConfig> ParsedEncoder(const std::string& type, const std::string& class_name,
                                          const std::string& more = "") {
  return ParseModelConfig(
      absl::StrCat(R"({"model_type": ")", type, R"(", "architectures": [")", class_name, R"("],
        "hidden_size": 48, "intermediate_size": 112, "num_attention_heads": 4, "vocab_size": 131,
        "num_hidden_layers": 2, "max_position_embeddings": 130)",
                   more, "}"),
      "config.json");
}

// The head's rows are those of the hidden tokens, and its matrix is the table's.
TEST(MaskedTest, EveryPlanOfMaskedTokensGivesTheGradients) {
  std::mt19937 random(7);
  TrainingMode lora = LoraMode();
  lora.adapter.rank = 2;
  lora.adapter.alpha = 1.0;
  for (const char* family : {"bert", "roberta", "distilbert"}) {
    SCOPED_TRACE(family);
    for (const TrainingMode& mode : {FullMode(), lora}) {
      const auto program = BuildProgram(MaskedShape(family, kTiny), mode);
      ASSERT_TRUE(program.ok()) << program.status();
      ExpectAnyPlanGivesTheGradientsOfKeep(*program, kPlans, random);
      ExpectFiniteDifferences(*program, random);
    }
  }
}

// Where nobody says how many rows are trained, there is room for all tokens.
TEST(MaskedTest, RoomForMaskedTokensIsThatOfAllTokens) {
  const TapeKey all = {.tokens = 40, .documents = 2, .longest_document = 30};
  TapeKey some = all;
  some.trained = 7;
  EXPECT_EQ(all.Of(Rows::kTrained), 40);
  EXPECT_EQ(all.Limited(Rows::kTrained, 16).Of(Rows::kTrained), 16);
  EXPECT_TRUE(all.Covers(some));
  EXPECT_EQ(some.Joined(all).Of(Rows::kTrained), 40);
  // The chunk of logits is the most that there is at a time.
  const Program program = *BuildProgram(MaskedShape("bert", {1, 16, 4, 4, 12, 900}), FullMode());
  const Plan keep = RecomputePlan(program, 0);
  TapeKey each = all;
  each.trained = 40;
  const auto bytes = [&](const TapeKey& key) {
    return Lower(program, keep, {.key = key})->arena_bytes;
  };
  EXPECT_EQ(bytes(all), bytes(each));
  EXPECT_LT(bytes(some), bytes(all));
}

// Of masked tokens the head is the files' own.
TEST(MaskedTest, ConfigsOfMaskedTokensAreRead) {
  const auto bert = ParsedEncoder("bert", "BertForPreTraining");
  ASSERT_TRUE(bert.ok()) << bert.status();
  EXPECT_EQ(ArchitectureOf(*bert), "BertForMaskedLM");
  EXPECT_EQ(ErrorOf({}, *bert), "");
  EXPECT_THAT(ErrorOf({Task::kMaskedLm, 3}, *bert), HasSubstr("num_labels: is of task"));
  EXPECT_THAT(ErrorOf({Task::kCausalLm, 0}, *bert), HasSubstr("no head for causal_lm"));
  const auto apart = ParsedEncoder("bert", "BertForMaskedLM", R"(, "tie_word_embeddings": false)");
  EXPECT_THAT(ErrorOf({}, *apart), HasSubstr("tie_word_embeddings is false"));
  EXPECT_EQ(ErrorOf({Task::kSequenceClassification, 3}, *apart), "");
  const auto classes = ParsedEncoder("bert", "BertForSequenceClassification");
  EXPECT_THAT(ErrorOf({Task::kMaskedLm, 0}, *classes), HasSubstr("no head for masked_lm"));
  EXPECT_THAT(ErrorOf({Task::kMaskedLm, 0}, LlamaShape(kTiny)),
              HasSubstr("task: masked_lm is not offered for llama, which is no encoder; it has "
                        "causal_lm, sequence_classification"));
  EXPECT_THAT(ErrorOf({Task::kMaskedLm, 0}, ImageShape("vit", kTiny)),
              HasSubstr("which reads images; it has image_classification"));
  const auto distil = ParseModelConfig(
      R"({"model_type": "distilbert", "architectures": ["DistilBertForMaskedLM"], "dim": 48,
          "hidden_dim": 112, "n_heads": 4, "n_layers": 2, "vocab_size": 131, "dropout": 0.3,
          "activation": "relu"})",
      "config.json");
  ASSERT_TRUE(distil.ok()) << distil.status();
  EXPECT_EQ(distil->width, 48);
  EXPECT_EQ(distil->activation, Activation::kRelu);
  EXPECT_EQ(distil->hidden_dropout, 0.3);
  EXPECT_EQ(distil->classifier_dropout, 0.2);
  EXPECT_EQ(distil->token_types, 0);
  EXPECT_EQ(distil->max_positions, 512);
  const auto computed = ParseModelConfig(
      R"({"model_type": "distilbert", "sinusoidal_pos_embds": true, "dim": 48, "hidden_dim": 112,
          "n_heads": 4, "n_layers": 2, "vocab_size": 131})",
      "config.json");
  EXPECT_THAT(std::string(computed.status().message()), HasSubstr("sinusoidal_pos_embds is true"));
  ModelConfig unnamed = *distil;
  unnamed.new_head = true;
  EXPECT_THAT(ErrorOf({}, unnamed), HasSubstr("give task: masked_lm, sequence_classification or"));
  EXPECT_EQ(ErrorOf({Task::kMaskedLm, 0}, unnamed), "");
}

// An adapter of one of its names would be no adapter of the other.
TEST(MaskedTest, TheMatrixOfMaskedTokensTakesNoAdapter) {
  const ModelConfig config = MaskedShape("roberta", {1, 16, 4, 4, 12, 11});
  TrainingMode mode = LoraMode({"query", "decoder"});
  EXPECT_THAT(std::string(BuildProgram(config, mode).status().message()),
              HasSubstr("lora.target_modules: lm_head.decoder and "
                        "roberta.embeddings.word_embeddings are one matrix"));
  mode.adapter.target_modules = {"dense"};
  mode.adapter.modules_to_save = {"word_embeddings"};
  EXPECT_THAT(std::string(BuildProgram(config, mode).status().message()),
              HasSubstr("lora.modules_to_save: lm_head.decoder"));
  mode.adapter.modules_to_save = {"layer_norm"};
  const auto program = BuildProgram(config, mode);
  ASSERT_TRUE(program.ok()) << program.status();
  std::vector<std::string> files;
  for (const Parameter& p : program->parameters) {
    if (InAdapterFile(p)) files.push_back(AdapterFileKey(p));
  }
  EXPECT_THAT(files, ::testing::IsSupersetOf({"base_model.model.lm_head.dense.lora_A.weight",
                                              "base_model.model.lm_head.layer_norm.weight",
                                              "base_model.model.lm_head.layer_norm.bias"}));
}

}  // namespace
}  // namespace snug::program
