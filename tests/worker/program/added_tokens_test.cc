// Which ids added tokens get, and how far the vocabulary grows, by tokenizer files of every kind;
// that these are the ids which the tokenizers library gives is shown in readers_test.py.
#include "worker/program/files/added_tokens.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/program/models.h"
#include "worker/program/files/safetensors.h"

namespace snug::program {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kBpe[] = R"({"version": "1.0", "added_tokens": [{"id": 0, "content": "<s>"}],
  "model": {"type": "BPE", "vocab": {"<s>": 0, "a": 1, "b": 2, "ab": 3}, "merges": [["a", "b"]]}})";

class AddedTokensTest : public ::testing::Test {
 protected:
  AddedTokensTest() : dir_(testing::TempDir() + "/added-tokens-" + std::to_string(getpid())) {
    std::filesystem::create_directories(dir_);
  }
  ~AddedTokensTest() override { std::filesystem::remove_all(dir_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ + "/" + name) << text;
  }
  absl::Status Add(const std::vector<std::string>& tokens, int64_t rows = 4) {
    config_ = LlamaShape({1, 8, 2, 1, 12, rows});
    return AddTokens(dir_, tokens, config_);
  }
  // With all modules but these frozen.
  absl::Status Build(std::vector<std::string> saved) {
    TrainingMode mode = LoraMode();
    mode.adapter.modules_to_save = std::move(saved);
    return BuildProgram(config_, mode).status();
  }
  std::string Refusal(const std::vector<std::string>& tokens) {
    return std::string(Add(tokens).message());
  }

  const std::string dir_;
  ModelConfig config_;
};

TEST_F(AddedTokensTest, NoneChangeNothingAndReadNothing) {
  ASSERT_TRUE(Add({}).ok());
  EXPECT_FALSE(config_.adds_tokens());
  EXPECT_EQ(config_.vocabulary, 4);
}

TEST_F(AddedTokensTest, TheirIdsFollowTheTokenizersAndTheMatricesGrow) {
  Write("tokenizer.json", kBpe);
  ASSERT_TRUE(Add({"<x>", "<y>"}).ok());
  EXPECT_EQ(config_.first_added, 4);
  EXPECT_EQ(config_.vocabulary, 6);
  EXPECT_EQ(config_.file_vocabulary, 4);
}

// As of Qwen, whose matrices have more rows than its tokenizer has tokens.
TEST_F(AddedTokensTest, RowsThatNoTokenHasAreUsedFirst) {
  Write("tokenizer.json", kBpe);
  ASSERT_TRUE(Add({"<x>", "<y>"}, /*rows=*/5).ok());
  EXPECT_EQ(config_.first_added, 4);
  EXPECT_EQ(config_.vocabulary, 6);
  ASSERT_TRUE(Add({"<x>", "<y>"}, /*rows=*/64).ok());
  EXPECT_EQ(config_.vocabulary, 64);
  EXPECT_EQ(config_.first_added, 4);
}

TEST_F(AddedTokensTest, TokensOutsideTheModelsVocabularyCount) {
  Write("tokenizer.json", R"({"added_tokens": [{"content": "<s>", "id": 7}],
    "model": {"vocab": [["a", -1.5], ["b", -2.0], ["c", -3]]}})");
  ASSERT_TRUE(Add({"<x>"}).ok());
  EXPECT_EQ(config_.first_added, 8);
  Write("tokenizer_config.json", R"({"added_tokens_decoder": {"9": {"content": "<t>"}}})");
  ASSERT_TRUE(Add({"<x>"}).ok());
  EXPECT_EQ(config_.first_added, 10);
}

TEST_F(AddedTokensTest, WhatTheTokenizerHasIsRefused) {
  Write("tokenizer.json", kBpe);
  EXPECT_THAT(Refusal({"<x>", "ab"}),
              "added_tokens: \"ab\" is a token of the model already: "
              "leave it out");
  EXPECT_THAT(Refusal({"<s>"}), HasSubstr("\"<s>\" is a token of the model already"));
  Write("tokenizer.json", R"({"added_tokens": [], "model": {"vocab": [["ab", -1.5]]}})");
  EXPECT_THAT(Refusal({"ab"}), HasSubstr("\"ab\" is a token of the model already"));
}

TEST_F(AddedTokensTest, WithoutAReadableTokenizerThereIsNothingToAddTo) {
  EXPECT_THAT(Refusal({"<x>"}), AllOf(StartsWith("added_tokens: "), HasSubstr("tokenizer.json")));
  Write("tokenizer.json", "{\"model\": ");
  EXPECT_THAT(Refusal({"<x>"}), AllOf(StartsWith("added_tokens: "), HasSubstr("parse error")));
  Write("tokenizer.json", "[]");
  EXPECT_THAT(Refusal({"<x>"}), HasSubstr("has no tokens"));
}

TEST_F(AddedTokensTest, RowsThatWouldNeverBeTrainedAreRefused) {
  Write("tokenizer.json", kBpe);
  ASSERT_TRUE(Add({"<x>"}).ok());
  EXPECT_TRUE(BuildProgram(config_, FullMode()).ok());
  EXPECT_TRUE(Build({"embed_tokens", "lm_head"}).ok());
  EXPECT_THAT(std::string(Build({"embed_tokens"}).message()),
              AllOf(StartsWith("added_tokens: their rows of lm_head would never be trained"),
                    HasSubstr("name lm_head in lora.modules_to_save")));
  EXPECT_THAT(std::string(Build({}).message()), HasSubstr("model.embed_tokens and lm_head"));
  config_.tied_embeddings = true;
  EXPECT_TRUE(Build({"embed_tokens"}).ok());
  EXPECT_TRUE(Build({"lm_head"}).ok());
  EXPECT_THAT(std::string(Build({}).message()), HasSubstr("of model.embed_tokens would never"));
}

TensorIndex IndexOf(const ModelConfig& config) {
  TensorIndex index;
  const Program program = *BuildProgram(config, FullMode());
  for (const Parameter& parameter : program.parameters)
    index[parameter.key] = {.dtype = "F32", .shape = parameter.shape, .file = "f"};
  return index;
}

TEST_F(AddedTokensTest, FilesOfTheBaseLackTheRowsAndThoseOfTheResultHaveThem) {
  Write("tokenizer.json", kBpe);
  ASSERT_TRUE(Add({"<x>"}).ok());
  const Program program = *BuildProgram(config_, FullMode());
  const TensorIndex result = IndexOf(config_);
  config_.vocabulary = 4;
  const TensorIndex base = IndexOf(config_);
  EXPECT_TRUE(CheckBaseWeights(program, base).ok());
  EXPECT_FALSE(CheckBaseWeights(program, result).ok());
  EXPECT_TRUE(CheckWeights(program, result).ok());
  EXPECT_FALSE(CheckWeights(program, base).ok());
}

// Bytes that this process has held at most.
int64_t PeakBytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} << 10;
}

// What each bracket of such a file costs must not be memory: one of 200 MB ended the daemon.
TEST_F(AddedTokensTest, NestingIsFollowedToItsLimitAlone) {
  Write("tokenizer.json", std::string(32 << 20, '['));
  const int64_t before = PeakBytes();
  EXPECT_THAT(Refusal({"<x>"}), HasSubstr("tokenizer.json: nested deeper than 32 levels"));
  EXPECT_LT(PeakBytes() - before, int64_t{128} << 20);
  std::string nested;
  for (int i = 0; i < 100; ++i) nested += R"({"a":)";
  Write("tokenizer.json", nested);
  EXPECT_THAT(Refusal({"<x>"}), HasSubstr("nested deeper than 32 levels"));
  Write("tokenizer.json", kBpe);
  Write("tokenizer_config.json", std::string(1000, '['));
  EXPECT_THAT(Refusal({"<x>"}), HasSubstr("tokenizer_config.json: nested deeper than 32 levels"));
}

TEST_F(AddedTokensTest, ValuesAreCountedToALimit) {
  std::string many = "[0";
  for (int i = 0; i < 16'000'000; ++i) many += ",0";
  Write("tokenizer.json", many + "]");
  EXPECT_THAT(Refusal({"<x>"}), HasSubstr("tokenizer.json: more than 16000000 values"));
}

}  // namespace
}  // namespace snug::program
