#include "client/importer.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/snug/yaml.h"
#include "snug/v1/job.pb.h"

namespace snug::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A stock file of another tool, imported: the text, and what a job file of ours makes of it.
class ImporterTest : public ::testing::Test {
 protected:
  void Import(const std::string& name) {
    const std::string path = std::string(std::getenv("SNUG_SOURCE_DIR")) + "/tests/data/foreign/";
    std::ostringstream text;
    text << std::ifstream(path + name).rdbuf();
    ASSERT_FALSE(text.str().empty());
    ImportText(text.str(), path + name);
  }
  void ImportText(const std::string& text, const std::string& file) {
    const absl::StatusOr<std::string> job = ImportJob(text, file);
    ASSERT_TRUE(job.ok()) << job.status();
    text_ = *job;
    spec_.Clear();
    const absl::Status read = ParseYaml(text_, "job.yaml", &spec_);
    ASSERT_TRUE(read.ok()) << read << "\n" << text_;
  }
  // The comment of a key, which says why.
  void ExpectNote(const std::string& key, const std::string& why) {
    const size_t at = text_.find("#   " + key + ": ");
    ASSERT_NE(at, std::string::npos) << key << "\n" << text_;
    const size_t end = text_.find("\n#   ", text_.find("\n#       ", at) + 1);
    EXPECT_THAT(text_.substr(at, end - at), HasSubstr(why));
  }
  void ExpectNoNote(const std::string& key) {
    EXPECT_THAT(text_, Not(HasSubstr("#   " + key + ":")));
  }

  std::string text_;
  v1::JobSpec spec_;
};

TEST_F(ImporterTest, Axolotl) {
  Import("axolotl.yml");
  EXPECT_THAT(text_, ::testing::StartsWith("# From axolotl.yml of axolotl.\n"));
  EXPECT_EQ(spec_.model(), "NousResearch/Llama-3.2-1B");
  EXPECT_EQ(spec_.method(), v1::JobSpec::METHOD_LORA);
  ASSERT_EQ(spec_.datasets_size(), 2);
  EXPECT_EQ(spec_.datasets(0).path(), "teknium/GPT4-LLM-Cleaned");
  EXPECT_EQ(spec_.datasets(0).dataset_format(), v1::JobSpec::DATASET_FORMAT_ALPACA);
  EXPECT_EQ(spec_.datasets(1).path(), "chats.jsonl.gz");
  EXPECT_EQ(spec_.datasets(1).columns().at("messages"), "turns");
  EXPECT_EQ(spec_.eval_split(), 0.1);
  EXPECT_EQ(spec_.lora().target_modules_size(), 3);
  EXPECT_EQ(spec_.lora().lora_dropout(), 0.05);
  EXPECT_EQ(spec_.training().max_seq_length(), 2048);
  EXPECT_TRUE(spec_.training().packing());
  EXPECT_EQ(spec_.training().per_device_train_batch_size(), 2);
  EXPECT_EQ(spec_.training().precision(), v1::TrainingSpec::PRECISION_BF16);
  EXPECT_EQ(spec_.training().warmup_steps(), 10);
  EXPECT_EQ(spec_.training().eval_strategy(), v1::TrainingSpec::STRATEGY_EPOCH);
  ExpectNote("gradient_checkpointing", "memory.budget");
  ExpectNote("output_dir", "snug download JOB DIR");
  EXPECT_EQ(spec_.training().optim(), "adamw_8bit");
  ExpectNote("evals_per_epoch", "once an epoch");
  ExpectNote("special_tokens", "added_tokens");
  ExpectNote("datasets[].roles_to_train", "weights");
  ExpectNote("loss_watchdog_threshold", "no setting of this name");
  for (const char* nothing : {"load_in_8bit", "wandb_project", "flash_attention", "strict",
                              "deepspeed", "train_on_inputs", "pad_to_sequence_len"})
    ExpectNoNote(nothing);
}

TEST_F(ImporterTest, LlamaFactory) {
  Import("llama_factory.yaml");
  EXPECT_EQ(spec_.method(), v1::JobSpec::METHOD_LORA);
  EXPECT_EQ(spec_.lora().r(), 8);
  EXPECT_EQ(spec_.lora().target_modules(0), "all-linear");
  ASSERT_EQ(spec_.datasets_size(), 2);
  EXPECT_EQ(spec_.datasets(0).path(), "data/identity.json");
  EXPECT_EQ(spec_.datasets(0).max_samples(), 1000);
  EXPECT_EQ(spec_.datasets(1).path(), "org/chats");
  EXPECT_EQ(spec_.datasets(1).split(), "train_sft");
  EXPECT_EQ(spec_.datasets(1).dataset_format(), v1::JobSpec::DATASET_FORMAT_MESSAGES);
  EXPECT_EQ(spec_.datasets(1).columns().at("messages"), "turns");
  EXPECT_EQ(spec_.datasets(1).columns().at("system"), "sys");
  EXPECT_EQ(spec_.training().num_train_epochs(), 3.0);
  EXPECT_EQ(spec_.training().warmup_ratio(), 0.1);
  EXPECT_FALSE(spec_.training().packing());  // Which it does not do unless it is told to.
  EXPECT_EQ(spec_.eval_split(), 0.1);
  ExpectNote("template", "the model's own chat template");
  ExpectNote("per_device_eval_batch_size", "per_device_train_batch_size");
  ExpectNoNote("plot_loss");
}

// Without dataset_info.json a name is all that there is: it is said so.
TEST_F(ImporterTest, LlamaFactoryWithoutTheNamesOfItsDatasets) {
  ImportText("model_name_or_path: m\nstage: dpo\nfinetuning_type: lora\ndataset: identity\n",
             "x.yaml");
  EXPECT_EQ(spec_.dataset(), "identity");
  EXPECT_THAT(text_, HasSubstr("# \"identity\" is a name of LLaMA-Factory's dataset_info.json"));
  ExpectNote("stage", "by preferences or rewards");
}

TEST_F(ImporterTest, Trl) {
  Import("trl.yaml");
  EXPECT_EQ(spec_.model(), "Qwen/Qwen2.5-0.5B");
  EXPECT_EQ(spec_.method(), v1::JobSpec::METHOD_LORA);
  EXPECT_EQ(spec_.dataset(), "org/chats");
  EXPECT_EQ(spec_.dataset_split(), "train_sft");
  EXPECT_EQ(spec_.eval_dataset_split(), "test_sft");
  EXPECT_EQ(spec_.columns().at("text"), "body");
  EXPECT_EQ(spec_.lora().r(), 32);
  EXPECT_EQ(spec_.training().max_seq_length(), 1024);
  EXPECT_EQ(spec_.training().precision(), v1::TrainingSpec::PRECISION_BF16);
  EXPECT_EQ(spec_.training().eval_steps(), 100);
  EXPECT_EQ(spec_.quantization(), v1::JobSpec::QUANTIZATION_NF4);
  ExpectNote("report_to", "snug export-metrics");
  EXPECT_EQ(spec_.training().report_to_size(), 0);
  ExpectNote("push_to_hub", "hf upload");
  ExpectNote("eos_token", "special tokens");
}

// TensorBoard has a place; of a list, what has none is a comment.
TEST_F(ImporterTest, WhatIsReportedTo) {
  for (const char* says : {"tensorboard", "[tensorboard]", "all"}) {
    ImportText(absl::StrCat("model_name_or_path: m\nstage: sft\nreport_to: ", says, "\n"), "x");
    EXPECT_THAT(spec_.training().report_to(), testing::ElementsAre("tensorboard")) << says;
    ExpectNoNote("report_to");
  }
  ImportText("model_name_or_path: m\nuse_peft: true\nreport_to: [wandb, tensorboard]\n", "x");
  EXPECT_THAT(spec_.training().report_to(), testing::ElementsAre("tensorboard"));
  ExpectNote("report_to", "snug export-metrics");
  ImportText("base_model: m\nuse_tensorboard: true\n", "x");
  EXPECT_THAT(spec_.training().report_to(), testing::ElementsAre("tensorboard"));
  ImportText("base_model: m\nuse_tensorboard: false\n", "x");
  EXPECT_EQ(spec_.training().report_to_size(), 0);
}

TEST_F(ImporterTest, OpenAi) {
  Import("openai.json");
  EXPECT_EQ(spec_.display_name(), "support");
  EXPECT_EQ(spec_.eval_dataset(), "eval.jsonl");
  EXPECT_EQ(spec_.dataset_format(), v1::JobSpec::DATASET_FORMAT_MESSAGES);
  EXPECT_EQ(spec_.training().num_train_epochs(), 2.0);
  EXPECT_EQ(spec_.training().seed(), 105);
  EXPECT_FALSE(spec_.training().has_per_device_train_batch_size());  // "auto"
  EXPECT_THAT(text_, HasSubstr("# Give model: "));
  EXPECT_THAT(text_, HasSubstr("# Give dataset: "));
  ExpectNote("model", "cannot be tuned here");
  ExpectNote("training_file", "uploaded to OpenAI");
  EXPECT_NEAR(spec_.training().learning_rate(), 1.8 * 2e-4, 1e-9);
  EXPECT_THAT(text_, HasSubstr("# OpenAI's learning rate is its own"));
  ExpectNote("integrations", "metrics.jsonl");
  EXPECT_EQ(spec_.labels().at("team"), "x");
}

TEST_F(ImporterTest, AModelsFolderIsNoneOfOpenAis) {
  ImportText(R"({"model": "./model", "training_file": "rows.jsonl"})", "x.json");
  EXPECT_EQ(spec_.model(), "./model");
}

// What a tool does where its file says nothing, and a job file would not.
TEST_F(ImporterTest, DefaultsAreTheTools) {
  ImportText("model_name_or_path: m\ndataset_name: d\nuse_peft: true\neval_strategy: steps\n", "x");
  EXPECT_EQ(spec_.training().learning_rate(), 2e-5);
  EXPECT_EQ(spec_.training().num_train_epochs(), 3.0);
  EXPECT_EQ(spec_.training().lr_scheduler_type(), v1::TrainingSpec::LR_SCHEDULER_TYPE_LINEAR);
  EXPECT_EQ(spec_.training().max_seq_length(), 1024);
  EXPECT_FALSE(spec_.assistant_only_loss());
  EXPECT_EQ(spec_.lora().lora_dropout(), 0.05);
  EXPECT_THAT(spec_.lora().target_modules(), testing::ElementsAre("q_proj", "v_proj"));
  EXPECT_EQ(spec_.eval_dataset_split(), "test");
  ImportText("model_name_or_path: m\ndataset_name: d\nuse_peft: true\neval_strategy:\n", "x");
  EXPECT_EQ(spec_.eval_dataset_split(), "");
  ImportText("model_name_or_path: m\nstage: sft\nfinetuning_type: lora\nlora_rank: 4\n", "x");
  EXPECT_EQ(spec_.lora().lora_alpha(), 8);
  EXPECT_EQ(spec_.training().learning_rate(), 5e-5);
  ImportText("model_name_or_path: m\nstage: sft\nfinetuning_type: full\n", "x");
  EXPECT_FALSE(spec_.has_lora());
  ImportText("base_model: m\nmicro_batch_size: 4\ndatasets: [{path: d, split: 'train[:5%]'}]\n",
             "x");
  EXPECT_EQ(spec_.training().per_device_train_batch_size(), 4);
  EXPECT_EQ(spec_.training().max_seq_length(), 512);
  EXPECT_EQ(spec_.dataset_split(), "train");
  ExpectNote("datasets[].split", "max_samples");
}

TEST_F(ImporterTest, OtherOptimizersAreComments) {
  ImportText("base_model: m\nlearning_rate: 1e-4\noptimizer: paged_adamw_8bit\n", "x.yml");
  EXPECT_EQ(spec_.training().optim(), "adamw_8bit");
  ImportText("base_model: m\nlearning_rate: 1e-4\noptimizer: lion_8bit\n", "x.yml");
  EXPECT_EQ(spec_.training().optim(), "");
  ExpectNote("optimizer", "AdamW");
}

// A value that a job file would refuse is a comment, with what it would say.
TEST_F(ImporterTest, ValuesThatDoNotFitAreComments) {
  ImportText("base_model: m\nlearning_rate: fast\nnum_epochs: 2\n", "x.yml");
  EXPECT_EQ(spec_.training().num_train_epochs(), 2.0);
  ExpectNote("training.learning_rate", "must be a finite number");
}

// A line break in a name or in a value opens no line that a job file would read.
TEST_F(ImporterTest, NothingOfAnotherFileEndsALineOfAComment) {
  ImportText("base_model: m\n\"x\\nmodel: y\": 1\ndataset_prepared_path: \"a\\nmodel: y\"\n",
             "x.yml");
  EXPECT_EQ(spec_.model(), "m");
  ExpectNote("x model: y", "no setting of this name");
  // Several datasets are a list over several lines.
  ImportText(
      "base_model: m\ndatasets:\n"
      "  - {path: a, type: {field_input: x}, split: \"\\e\"}\n"
      "  - {path: b, type: alpaca, data_files: [c], split: \"\"}\n"
      "lora_target_modules: \"q_proj]\\nmodel: [y\"\n",
      "x.yml");
  EXPECT_EQ(spec_.model(), "m");
  ImportText(
      "cutoff_len: 8\ndataset: [a, b]\nmax_samples: ten\nlora_target: \"q]\\nmodel: [y, v\"\n",
      "x.yml");
  EXPECT_EQ(spec_.model(), "");
  ExpectNote("datasets", "max_samples must be a whole number");
}

// Beside the section that holds what was taken it would be there twice.
TEST_F(ImporterTest, AKeyThatIsASectionOfOursIsAComment) {
  ImportText("base_model: m\nsequence_len: 8\ntraining: {max_seq_length: 9}\nlora: null\n",
             "f.yml");
  EXPECT_EQ(spec_.training().max_seq_length(), 8);
  ExpectNote("training", "no setting of this name");
}

// ASCII's separators in a value are no separators of what is said about it.
TEST_F(ImporterTest, SeparatorsInAValueAreSpaces) {
  ImportText("base_model: m\nlearning_rate: \"\\x1e\\x1f\"\n", "x.yml");
  ExpectNote("training.learning_rate", "must be a finite number");
}

TEST_F(ImporterTest, AnEvaluationWithoutANameIsNone) {
  ImportText("cutoff_len: 8\nmax_samples: 5\neval_dataset: [\"\"]\n", "x.yml");
  EXPECT_EQ(spec_.eval_dataset(), "");
}

TEST_F(ImporterTest, TextIsQuotedWhereYamlWouldReadSomethingElse) {
  EXPECT_EQ(QuotedYaml("a/b-c.jsonl"), "a/b-c.jsonl");
  EXPECT_EQ(QuotedYaml("true"), "\"true\"");
  EXPECT_EQ(QuotedYaml("1e5"), "\"1e5\"");
  EXPECT_EQ(QuotedYaml("a: b # \"c\""), "\"a: b # \\\"c\\\"\"");
  EXPECT_EQ(QuotedYaml(""), "\"\"");
}

TEST_F(ImporterTest, OtherFilesAreRefused) {
  const absl::Status status = ImportJob("a: 1\n", "x.yaml").status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("x.yaml: is this a job file of axolotl"));
  EXPECT_FALSE(ImportJob("- a\n", "x.yaml").ok());
}

}  // namespace
}  // namespace snug::client
