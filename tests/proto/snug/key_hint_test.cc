#include "proto/snug/key_hint.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "snug/v1/config.pb.h"
#include "snug/v1/job.pb.h"

namespace snug {
namespace {

using ::testing::HasSubstr;

std::string JobHint(absl::string_view key) {
  return KeyHint(key, *v1::JobSpec::descriptor(), *v1::JobSpec::descriptor());
}

std::string TrainingHint(absl::string_view key) {
  return KeyHint(key, *v1::TrainingSpec::descriptor(), *v1::JobSpec::descriptor());
}

TEST(NearestTest, CountsInsertDeleteReplaceAndSwap) {
  EXPECT_EQ(Nearest("packng", {"seed", "packing"}), "packing");
  EXPECT_EQ(Nearest("Packing", {"seed", "packing"}), "packing");
  EXPECT_EQ(Nearest("modle", {"mode", "model"}), "mode");  // One edit each; the first one wins.
  EXPECT_EQ(Nearest("sede", {"save", "seed"}), "seed");
}

TEST(NearestTest, FarWordsAreNotNear) {
  EXPECT_EQ(Nearest("zebra", {"model", "dataset"}), "");
  EXPECT_EQ(Nearest("x", {"r"}), "");
  EXPECT_EQ(Nearest("x", {}), "");
}

TEST(KeyHintTest, KnowsTheNamesOfOtherTools) {
  EXPECT_EQ(JobHint("cutoff_len"), "did you mean training.max_seq_length?");
  EXPECT_EQ(JobHint("lora_r"), "did you mean lora.r?");
  EXPECT_EQ(JobHint("micro_batch_size"), "did you mean training.per_device_train_batch_size?");
  EXPECT_EQ(JobHint("model_name_or_path"), "did you mean model?");
  EXPECT_EQ(TrainingHint("sequence_len"), "did you mean training.max_seq_length?");
  EXPECT_EQ(TrainingHint("lora_rank"), "did you mean lora.r?");
  EXPECT_EQ(JobHint("dropout"), "did you mean lora.lora_dropout?");
}

// A job key that is spelled right but stands in the wrong place.
TEST(KeyHintTest, FindsTheFieldElsewhere) {
  EXPECT_EQ(JobHint("learning_rate"), "did you mean training.learning_rate?");
  EXPECT_EQ(JobHint("target_modules"), "did you mean lora.target_modules?");
  EXPECT_EQ(TrainingHint("priority"), "did you mean priority?");
}

TEST(KeyHintTest, FindsTheNearestHereThenElsewhere) {
  EXPECT_EQ(TrainingHint("learnin_rate"), "did you mean learning_rate?");
  EXPECT_EQ(JobHint("datset"), "did you mean dataset?");
  EXPECT_EQ(JobHint("max_step"), "did you mean training.max_steps?");
}

// Megabytes are compared letter by letter with no key.
TEST(KeyHintTest, AKeyThatIsFarTooLongIsNearNone) {
  EXPECT_THAT(JobHint(std::string(size_t{8} << 20, 'd')), HasSubstr("the keys here are"));
}

TEST(KeyHintTest, ListsTheKeysWhenNothingIsNear) {
  EXPECT_THAT(JobHint("zzzzzzzz"), HasSubstr("the keys here are display_name, model, dataset"));
}

// Names of other tools mean nothing in the daemon's configuration.
TEST(KeyHintTest, SynonymsOnlyWhereTheFieldExists) {
  const auto* config = v1::DaemonConfig::descriptor();
  EXPECT_EQ(KeyHint("socet", *config, *config), "did you mean socket?");
  EXPECT_THAT(KeyHint("cutoff_len", *config, *config), HasSubstr("the keys here are state_dir"));
}

}  // namespace
}  // namespace snug
