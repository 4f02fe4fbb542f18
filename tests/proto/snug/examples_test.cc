// The two example job files, field by field.
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "proto/snug/yaml.h"
#include "snug/v1/job.pb.h"

namespace snug {
namespace {

v1::JobSpec Example(const std::string& name) {
  const std::string path = std::string(getenv("SNUG_SOURCE_DIR")) + "/tests/data/examples/" + name;
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_FALSE(text.str().empty()) << path;
  v1::JobSpec spec;
  const absl::Status status = ParseYaml(text.str(), name, &spec);
  EXPECT_TRUE(status.ok()) << status;
  return spec;
}

v1::JobSpec FromText(const char* text) {
  v1::JobSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec));
  return spec;
}

void ExpectEqual(const v1::JobSpec& actual, const v1::JobSpec& expected) {
  google::protobuf::util::MessageDifferencer differ;
  std::string difference;
  differ.ReportDifferencesToString(&difference);
  EXPECT_TRUE(differ.Compare(expected, actual)) << difference;
}

TEST(ExamplesTest, Lora) {
  ExpectEqual(Example("lora.yaml"), FromText(R"(
    display_name: "answers-lora" model: "./model" dataset: "./train.jsonl"
    eval_dataset: "./eval.jsonl" method: METHOD_LORA
    lora { r: 16 lora_alpha: 32 lora_dropout: 0 target_modules: "all-linear" use_rslora: false }
    training {
      num_train_epochs: 1 per_device_train_batch_size: 8 gradient_accumulation_steps: 1
      learning_rate: 2e-4 lr_scheduler_type: LR_SCHEDULER_TYPE_COSINE
      warmup_ratio: 0.03 max_grad_norm: 1
      max_seq_length: 512 packing: true precision: PRECISION_BF16
      seed: 42 eval_steps: 50 save_steps: 100
      save_total_limit: 2
    }
    memory { budget: "auto" fidelity: FIDELITY_EXACT })"));
}

TEST(ExamplesTest, Full) {
  ExpectEqual(Example("full.yaml"), FromText(R"(
    display_name: "tiny-full" model: "./model" dataset: "./train.jsonl" method: METHOD_FULL
    training {
      max_steps: 20 per_device_train_batch_size: 4 gradient_accumulation_steps: 2
      learning_rate: 1e-3 lr_scheduler_type: LR_SCHEDULER_TYPE_CONSTANT
      weight_decay: 0.01 max_grad_norm: 1
      max_seq_length: 128 packing: false precision: PRECISION_FP32 seed: 7
    }
    memory { stash { key: "*" value: STASH_KIND_RECOMPUTE } })"));
}

}  // namespace
}  // namespace snug
