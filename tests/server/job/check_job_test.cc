// Jobs against the files they name: the adapter to start from, and how a wrong field is said.
#include "server/job/check_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <ctime>
#include <filesystem>

#include "google/protobuf/util/message_differencer.h"
#include "nlohmann/json.hpp"
#include "server/job/errors.h"
#include "server/job/inherit_adapter.h"
#include "tests/server/job/no_origins.h"
#include "tests/server/testing/test_folder.h"
#include "tests/server/testing/tiny_model.h"
#include "worker/program/model_config.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class AdapterTest : public testing::Test {
 protected:
  AdapterTest() {
    fs::create_directories(dir_ + "/adapter");
    Write(json::object());
    lora_.set_init_adapter(dir_ + "/adapter");
  }

  // The configuration as PEFT writes it, with these fields changed.
  void Write(const json& changes) {
    json config = json::parse(R"({"alpha_pattern": {}, "auto_mapping": null,
      "base_model_name_or_path": "x", "bias": "none", "exclude_modules": null,
      "fan_in_fan_out": false, "inference_mode": true, "init_lora_weights": true,
      "layer_replication": null, "layers_pattern": null, "layers_to_transform": null,
      "lora_alpha": 24, "lora_bias": false, "lora_dropout": 0.1, "modules_to_save": null,
      "peft_type": "LORA", "r": 4, "rank_pattern": {}, "target_modules": ["q_proj", "v_proj"],
      "target_parameters": null, "task_type": "CAUSAL_LM", "trainable_token_indices": null,
      "use_dora": false, "use_qalora": false, "use_rslora": false})");
    config.update(changes);
    WriteText(dir_ + "/adapter/adapter_config.json", config.dump());
  }
  // The refusal of an adapter with these fields changed.
  std::string Refusal(const json& changes) {
    Write(changes);
    v1::LoraSpec lora = lora_;
    const absl::Status status = InheritAdapter(lora);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << changes << ": " << status;
    return std::string(status.message());
  }

  const TestFolder folder_{"check-job"};
  const std::string dir_ = folder_.path();
  v1::LoraSpec lora_;
};

TEST_F(AdapterTest, WhatTheJobDoesNotSayIsTheAdapters) {
  Write({{"use_rslora", true}});
  ASSERT_TRUE(InheritAdapter(lora_).ok());
  EXPECT_EQ(lora_.r(), 4);
  EXPECT_EQ(lora_.lora_alpha(), 24.0);
  EXPECT_TRUE(lora_.use_rslora());
  EXPECT_EQ(lora_.lora_dropout(), 0.1);
  EXPECT_THAT(lora_.target_modules(), ElementsAre("q_proj", "v_proj"));
  const v1::LoraSpec before = lora_;
  EXPECT_TRUE(InheritAdapter(lora_).ok());  // As when the stored job is checked again.
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(before, lora_));
}

// It changes the training, not what the adapter computes.
TEST_F(AdapterTest, DropoutMayBeAnother) {
  for (double rate : {0.0, 0.5}) {
    lora_.set_lora_dropout(rate);
    ASSERT_TRUE(InheritAdapter(lora_).ok());
    EXPECT_EQ(lora_.lora_dropout(), rate);
  }
  EXPECT_THAT(Refusal({{"lora_dropout", 1.0}}), HasSubstr("lora_dropout is 1.0, which Snug"));
}

// Written by an old PEFT, which did not know the field: its default then was the only way.
TEST_F(AdapterTest, AbsentFieldsAreTheirDefaults) {
  WriteText(dir_ + "/adapter/adapter_config.json",
            R"({"r": 4, "lora_alpha": 8, "target_modules": "all-linear"})");
  ASSERT_TRUE(InheritAdapter(lora_).ok());
  EXPECT_TRUE(lora_.has_use_rslora());
  EXPECT_FALSE(lora_.use_rslora());
  EXPECT_THAT(lora_.target_modules(), ElementsAre("all-linear"));
}

TEST_F(AdapterTest, AJobThatContradictsItIsRefused) {
  lora_.set_use_rslora(false);
  EXPECT_THAT(Refusal({{"use_rslora", true}}),
              HasSubstr("adapter_config.json: use_rslora is true, the job asks for false"));
  lora_.set_use_rslora(true);
  EXPECT_THAT(Refusal(json::object()), HasSubstr("use_rslora is false, the job asks for true"));
  lora_.clear_use_rslora();
  lora_.set_lora_alpha(8);
  EXPECT_THAT(Refusal(json::object()), HasSubstr("lora_alpha is 24, the job asks for 8"));
  lora_.clear_lora_alpha();
  lora_.set_r(8);
  EXPECT_THAT(Refusal(json::object()), HasSubstr("r is 4, the job asks for 8"));
}

// Each of these changes what the adapter computes; none is computed here.
TEST_F(AdapterTest, WhatIsNotComputedIsRefusedByName) {
  const json refused = {{"bias", "all"},
                        {"fan_in_fan_out", true},
                        {"init_lora_weights", "pissa_niter_4"},
                        {"layer_replication", {{0, 2}, {1, 2}}},
                        {"layers_pattern", "h"},
                        {"layers_to_transform", "0"},
                        {"lora_bias", true},
                        {"modules_to_save", 3},
                        {"peft_type", "IA3"},
                        {"rank_pattern", {{"q_proj", 0}}},
                        {"target_parameters", {"w"}},
                        {"trainable_token_indices", {1, 2}},
                        {"use_dora", true},
                        {"use_qalora", true},
                        {"use_rslora", "yes"}};
  for (const auto& [field, value] : refused.items())
    EXPECT_THAT(Refusal({{field, value}}), HasSubstr(": " + field + " is " + value.dump()));
  const json accepted = {{"layers_pattern", json::array()},
                         {"modules_to_save", json::array()},
                         {"bias", nullptr},
                         {"init_lora_weights", "gaussian"},
                         {"exclude_modules", ""},
                         {"lora_dropout", 0.5}};
  for (const auto& [field, value] : accepted.items()) {
    Write({{field, value}});
    EXPECT_TRUE(InheritAdapter(lora_).ok()) << field;
  }
}

// All that is computed here comes along, and nothing of it may be contradicted.
TEST_F(AdapterTest, TheOptionsOfPeftAreInherited) {
  const json options = {{"target_modules", ".*q_proj"},
                        {"rank_pattern", {{"layers.0.*q_proj", 8}}},
                        {"alpha_pattern", {{"q_proj", 64.5}}},
                        {"exclude_modules", {"v_proj"}},
                        {"layers_to_transform", 1},
                        {"modules_to_save", {"lm_head"}}};
  Write(options);
  ASSERT_TRUE(InheritAdapter(lora_).ok());
  EXPECT_THAT(lora_.target_modules(), ElementsAre(".*q_proj"));
  EXPECT_EQ(lora_.rank_pattern().at("layers.0.*q_proj"), 8);
  EXPECT_EQ(lora_.alpha_pattern().at("q_proj"), 64.5);
  EXPECT_THAT(lora_.exclude_modules(), ElementsAre("v_proj"));
  EXPECT_THAT(lora_.layers_to_transform(), ElementsAre(1));
  EXPECT_THAT(lora_.modules_to_save(), ElementsAre("lm_head"));
  EXPECT_TRUE(InheritAdapter(lora_).ok());  // As when the stored job is checked again.
  lora_.set_modules_to_save(0, "embed_tokens");
  EXPECT_THAT(Refusal(options),
              HasSubstr("modules_to_save is [lm_head], the job asks for [embed_tokens]"));
  lora_.clear_modules_to_save();
  (*lora_.mutable_rank_pattern())["q_proj"] = 2;
  EXPECT_THAT(Refusal(options), HasSubstr("rank_pattern is {layers.0.*q_proj: 8}, the job asks"));
}

// As a text PEFT compares it with whole paths: a name alone would match nothing.
TEST_F(AdapterTest, ATextThatIsNoPatternIsRefused) {
  EXPECT_THAT(Refusal({{"target_modules", "q_proj"}}), HasSubstr("target_modules is the text"));
}

// A FIFO without a writer would be waited for for ever, by a thread that others wait for.
TEST_F(AdapterTest, OnlyARegularFileIsRead) {
  const std::string path = dir_ + "/adapter/adapter_config.json";
  fs::remove(path);
  EXPECT_TRUE(absl::IsNotFound(InheritAdapter(lora_)));
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(std::string(InheritAdapter(lora_).message()),
              HasSubstr("adapter_config.json: not a regular file"));
  fs::remove(path);
  EXPECT_THAT(Refusal({{"task_type", std::string(1 << 20, 'x')}}), HasSubstr("at most 1048576"));
}

TEST_F(AdapterTest, NumbersThatAreMissingOrWrong) {
  EXPECT_THAT(Refusal({{"r", 0}}), HasSubstr("r is missing or outside 1 to 4096"));
  EXPECT_THAT(Refusal({{"r", "four"}}), HasSubstr("r is missing"));
  EXPECT_THAT(Refusal({{"lora_alpha", nullptr}}), HasSubstr("lora_alpha is missing"));
}

class CheckJobTest : public AdapterTest {
 protected:
  CheckJobTest() {
    WriteTinyModel(dir_ + "/model");
    WriteTinyDataset(dir_ + "/train.jsonl", 4, 8);
    spec_.set_model(dir_ + "/model");
    spec_.set_dataset(dir_ + "/train.jsonl");
    spec_.set_method(v1::JobSpec::METHOD_LORA);
  }
  absl::StatusOr<CheckedJob> Check(InputFiles inputs = InputFiles::kNeeded) {
    const absl::StatusOr<ModelOrigin> model = ModelOriginOf(spec_, NoOrigins());
    if (!model.ok()) return CheckJob(spec_, model.status(), inputs);
    return CheckJob(spec_, model->dir, inputs);
  }
  // The tensors of the adapter that Write() configures.
  void WriteAdapterTensors() {
    program::TrainingMode mode;
    mode.lora = true;
    mode.adapter.rank = 4;
    mode.adapter.target_modules = {"q_proj", "v_proj"};
    const auto config = program::ReadModelConfig(dir_ + "/model").value();
    WriteParameters(dir_ + "/adapter/adapter_model.safetensors",
                    program::BuildProgram(config, mode).value(), Holds::kAdapter);
    spec_.mutable_lora()->set_init_adapter(dir_ + "/adapter");
  }

  v1::JobSpec spec_;
};

// The program that is planned and run has the adapter's scale, alpha / sqrt(r).
TEST_F(CheckJobTest, TheProgramHasTheAdaptersScale) {
  Write({{"use_rslora", true}});
  WriteAdapterTensors();
  const absl::StatusOr<CheckedJob> job = Check();
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE(job->spec.lora().use_rslora());
  EXPECT_TRUE(ModeOf(job->spec).adapter.rslora);
  EXPECT_EQ(ModeOf(job->spec).adapter.alpha, 24.0);
}

// Prepared, the job has all that it took from its files: they may be gone, and nothing changes.
TEST_F(CheckJobTest, APreparedJobNeedsItsInputFilesNoMore) {
  WriteAdapterTensors();
  const absl::StatusOr<CheckedJob> first = Check();
  ASSERT_TRUE(first.ok()) << first.status();
  fs::remove_all(dir_ + "/adapter");
  fs::remove(dir_ + "/train.jsonl");
  spec_ = first->spec;
  const absl::StatusOr<CheckedJob> again = Check(InputFiles::kDone);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(first->spec, again->spec));
  const std::string refusal(Check().status().message());
  EXPECT_THAT(refusal, HasSubstr("spec.lora.init_adapter: cannot open"));
  EXPECT_EQ(CheckDatasetFiles(spec_).at(0).field, "spec.dataset");
}

// Of the processor's time, not of the disk's: thousands of submits a second wait for it.
TEST_F(CheckJobTest, ASubmitIsCheckedInAFifthOfAMillisecond) {
  constexpr int kTimes = 1000;
  const auto seconds = [] {
    timespec now = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  };
  const double before = seconds();
  for (int i = 0; i < kTimes; ++i) ASSERT_TRUE(CheckForm(spec_, NoOrigins()).ok());
  const double each = (seconds() - before) / kTimes;
  RecordProperty("microseconds_each", static_cast<int>(each * 1e6));
  EXPECT_LE(each, 200e-6);
}

// Qwen2.5 with yarn, as its model card has it: 4 x 32768 tokens, scaled down.
TEST_F(CheckJobTest, RopeScalingStretchesTheModelsLimit) {
  json config = json::parse(ReadText(dir_ + "/model/config.json"));
  spec_.mutable_training()->set_max_seq_length(512);
  const std::string refusal(Check().status().message());
  EXPECT_THAT(refusal,
              HasSubstr("512 tokens are more than the model's 128 (max_position_embeddings)"));
  config["rope_scaling"] = {
      {"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 128}};
  WriteText(dir_ + "/model/config.json", config.dump());
  const absl::StatusOr<CheckedJob> job = Check();
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.training().max_seq_length(), 512);
  spec_.mutable_training()->set_max_seq_length(513);
  EXPECT_THAT(std::string(Check().status().message()),
              HasSubstr("model's 512 (max_position_embeddings under RoPE scaling)"));
  spec_.clear_training();
  EXPECT_EQ(Check()->spec.training().max_seq_length(), 512);
}

// Each number is within its own limit; the bytes of a plan would not fit 64 bits.
TEST_F(CheckJobTest, ABatchBeyondAllDevicesIsRefused) {
  json config = json::parse(ReadText(dir_ + "/model/config.json"));
  config["num_hidden_layers"] = 64;
  config["intermediate_size"] = 65'536;
  config["max_position_embeddings"] = 4'000'000;
  WriteText(dir_ + "/model/config.json", config.dump());
  v1::TrainingSpec& training = *spec_.mutable_training();
  training.set_max_seq_length(4'000'000);
  training.set_per_device_train_batch_size(300'000);
  const std::string refusal(Check().status().message());
  EXPECT_THAT(refusal, HasSubstr("spec.training.per_device_train_batch_size: 300000 rows of "
                                 "max_seq_length 4000000, "));
  EXPECT_THAT(refusal, HasSubstr("are more than 8192 TiB"));
  training.set_per_device_train_batch_size(8);
  EXPECT_THAT(std::string(Check().status().message()), Not(HasSubstr("batch_size")));
}

// Each task has its own metrics, which the refusal names.
TEST_F(CheckJobTest, TheBestIsToldByAMetricOfTheTask) {
  const auto refusal = [&](const char* metric) {
    spec_.mutable_training()->set_metric_for_best_model(metric);
    return std::string(Check().status().message());
  };
  EXPECT_THAT(refusal("mean_token_accuracy"), Not(HasSubstr("metric_for_best")));
  spec_.set_eval_split(0.5);
  spec_.mutable_training()->set_predict_with_generate(true);
  EXPECT_THAT(refusal("rougeL"),
              AllOf(HasSubstr("eval_mean_token_accuracy"),
                    HasSubstr("spec.training.predict_with_generate: is of task: seq2seq_lm; this "
                              "job's is causal_lm")));
  spec_.mutable_training()->set_predict_with_generate(false);
  EXPECT_THAT(refusal("eval_accuracy"),
              HasSubstr("spec.training.metric_for_best_model: eval_accuracy is no metric of task: "
                        "causal_lm, which has eval_loss, eval_mean_token_accuracy"));
  spec_.set_task(v1::JobSpec::TASK_SEQUENCE_CLASSIFICATION);
  spec_.set_num_labels(3);
  EXPECT_THAT(refusal("eval_accuracy"), Not(HasSubstr("metric_for_best")));
  EXPECT_THAT(refusal("matthews_correlation"), Not(HasSubstr("metric_for_best")));
  EXPECT_THAT(refusal("eval_f1"),
              HasSubstr("(single_label_classification of 3 outputs), which has eval_loss, "
                        "eval_accuracy, eval_f1_macro, eval_matthews_correlation"));
  spec_.set_num_labels(2);
  EXPECT_EQ(refusal("eval_f1"), "");
  spec_.set_problem_type("regression");
  EXPECT_THAT(refusal("spearman"), Not(HasSubstr("metric_for_best")));
  EXPECT_THAT(refusal("accuracy"), HasSubstr("eval_loss, eval_mse, eval_pearson, eval_spearman"));
}

// The readers' messages open with the field that the violation names already.
TEST_F(CheckJobTest, AFieldIsNamedOnce) {
  (*spec_.mutable_memory()->mutable_stash())["no.such.site"] = v1::STASH_KIND_KEEP;
  EXPECT_THAT(std::string(Check().status().message()),
              testing::StartsWith("spec.memory.stash: 'no.such.site' matches no site"));
  spec_.clear_memory();
  spec_.mutable_lora()->add_target_modules("nothing_proj");
  const std::string message(Check().status().message());
  EXPECT_THAT(message, testing::StartsWith("spec.lora.target_modules: no module 'nothing_proj'"));
  EXPECT_THAT(ToJobError(Check().status()).message(), Not(HasSubstr("lora.target_modules")));
}

}  // namespace
}  // namespace snug::server
