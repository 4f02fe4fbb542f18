// A whole attempt on a GPU: load, steps, evaluation, answers, checkpoints, export, merge. Against
// the same attempt on the CPU, whose sums are rounded elsewhere; against itself, resumed, to the
// bit; and against its prediction, to the byte.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/worker/checkpoint/testbed.h"
#include "tests/worker/execute/gpu/test_gpu.h"
#include "tests/worker/execute/toy_run.h"
#include "tests/worker/train/run_on.h"
#include "tests/worker/train/toy_job.h"
#include "worker/program/files/safetensors.h"
#include "worker/train/trainer.h"

namespace snug::train {
namespace {

using checkpoint::ReadText;
using checkpoint::TempFolder;
using execute::Device;
using execute::OpenTestGpu;
using execute::TestDevice;
using Outcome = AttemptResult::Outcome;

constexpr int64_t kSteps = 2;
constexpr double kLearningRate = 1e-3;

// By how much two fp32 runs may differ in an element. Adam's first steps move it by the learning
// rate whatever the size of its gradient, down to one that is rounding alone; a step that went the
// other way would be a hundred times as much.
constexpr float kApart = 0.01 * kLearningRate * kSteps;

AttemptResult RunToEnd(Device& device, const AttemptOptions& attempt) {
  AttemptResult result = RunOn(device, attempt);
  EXPECT_EQ(result.outcome, Outcome::kSucceeded) << device.name() << ": " << result.message;
  return result;
}

AttemptOptions MakeAttempt(const TempFolder& folder, const program::TrainingMode& mode) {
  const ToyModel model;
  WriteModel(folder / "model", model);
  WriteData(folder / "data", {7, 12, 3, 9, 2}, model.sizes.vocabulary);
  WriteData(folder / "eval", {6, 4}, model.sizes.vocabulary, /*seed=*/5);
  WritePrompts(folder / "prompts.json", {3}, model.sizes.vocabulary);
  TrainingOptions training = ToyTraining();
  training.max_steps = kSteps;
  training.save_steps = 1;
  training.save_total_limit = kSteps;
  training.max_grad_norm = 0.5;
  training.learning_rate = kLearningRate;
  training.samples = {.max_new_tokens = 3, .temperature = 1.0, .top_p = 0.9};
  AttemptOptions attempt = ToyAttempt(folder.path(), mode, training);
  attempt.prompts_file = folder / "prompts.json";
  return attempt;
}

AttemptOptions OnGpu(AttemptOptions attempt) {
  attempt.device = "gpu:0";
  attempt.attempt_dir += "-gpu";
  attempt.checkpoints_dir += "-gpu";
  return attempt;
}

std::vector<float> ValuesOf(const program::TensorEntry& entry) {
  const std::string bytes =
      ReadText(entry.file)
          .substr(static_cast<size_t>(entry.begin), static_cast<size_t>(entry.bytes));
  std::vector<float> values;
  const size_t size = entry.dtype == "F32" ? 4 : 2;
  for (size_t at = 0; at < bytes.size(); at += size) {
    uint32_t bits = 0;
    std::memcpy(reinterpret_cast<char*>(&bits) + 4 - size, bytes.data() + at, size);
    float value = 0.0f;
    std::memcpy(&value, &bits, sizeof(value));
    values.push_back(value);
  }
  return values;
}

// The same tensors, each within kApart and `tolerance` of its largest value.
void ExpectNear(const std::string& one, const std::string& two, float tolerance) {
  const auto a = program::ReadSafetensorsHeader(one), b = program::ReadSafetensorsHeader(two);
  SNUG_ASSERT_OK(a);
  SNUG_ASSERT_OK(b);
  ASSERT_EQ(a->size(), b->size());
  for (const auto& [key, entry] : *a) {
    ASSERT_TRUE(b->contains(key)) << key;
    EXPECT_EQ(entry.dtype, b->at(key).dtype) << key;
    EXPECT_EQ(entry.shape, b->at(key).shape) << key;
    const std::vector<float> x = ValuesOf(entry), y = ValuesOf(b->at(key));
    float largest = 0.0f, apart = 0.0f;
    for (size_t i = 0; i < x.size(); ++i) {
      largest = std::max(largest, std::abs(x[i]));
      apart = std::max(apart, std::abs(x[i] - y[i]));
    }
    EXPECT_LE(apart, kApart + tolerance * largest) << key;
  }
}

void ExpectSameNames(const std::string& one, const std::string& two) {
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(one)) {
    const std::filesystem::path path = std::filesystem::relative(entry.path(), one);
    EXPECT_TRUE(std::filesystem::exists(two / path)) << path;
    ++files;
  }
  EXPECT_GE(files, 4);
}

struct Tolerance {
  double loss = 0.0;     // Of its value.
  float weights = 0.0f;  // Of a tensor's largest.
};

void ExpectTheCpus(const AttemptOptions& here, const Tolerance& tolerance) {
  const AttemptOptions there = OnGpu(here);
  const auto gpu = OpenTestGpu();
  const AttemptResult result = RunToEnd(TestDevice(), here), on_gpu = RunToEnd(*gpu, there);
  const auto near = [&](double a, double b) { EXPECT_NEAR(a, b, tolerance.loss * std::abs(a)); };
  near(result.progress.loss, on_gpu.progress.loss);
  near(result.progress.grad_norm, on_gpu.progress.grad_norm);
  near(*result.progress.eval_loss, *on_gpu.progress.eval_loss);
  near(result.verified_loss, on_gpu.verified_loss);
  EXPECT_EQ(result.merged_loss.has_value(), on_gpu.merged_loss.has_value());
  if (result.merged_loss.has_value()) near(*result.merged_loss, *on_gpu.merged_loss);
  ExpectSameNames(here.attempt_dir, there.attempt_dir);
  const char* file =
      here.mode.lora ? "/output/adapter_model.safetensors" : "/output/model.safetensors";
  ExpectNear(here.attempt_dir + file, there.attempt_dir + file, tolerance.weights);
  for (int64_t step = 1; step <= kSteps; ++step) {
    const std::string name = absl::StrCat("/step-00000", step, ".e1");
    ExpectNear(checkpoint::WeightsFileOf(here.checkpoints_dir + name),
               checkpoint::WeightsFileOf(there.checkpoints_dir + name), tolerance.weights);
  }
}

program::TrainingMode EveryAdapter() {
  program::TrainingMode mode =
      program::LoraMode({"q_proj", "down_proj", "lm_head", "embed_tokens"});
  mode.adapter.modules_to_save = {"model.norm"};
  mode.adapter.dropout = 0.25;
  return mode;
}

TEST(GpuAttemptTest, AnAdapterIsNearThatOfTheCpu) {
  const TempFolder folder;
  AttemptOptions attempt = MakeAttempt(folder, EveryAdapter());
  attempt.merge = true;
  ExpectTheCpus(attempt, {.loss = 1e-5, .weights = 1e-5f});
}

program::TrainingMode Quantised(program::Quantization kind, program::DType compute) {
  program::TrainingMode mode = program::LoraMode({"q_proj", "down_proj"}, compute);
  mode.quantization = kind;
  return mode;
}

// Codes are the same bytes on both; products with them are not.
TEST(GpuAttemptTest, AnAdapterBesideAQuantisedBaseIsNearThatOfTheCpu) {
  for (const auto kind : {program::Quantization::kNf4, program::Quantization::kInt8}) {
    const TempFolder folder;
    ExpectTheCpus(MakeAttempt(folder, Quantised(kind, program::DType::kF32)),
                  {.loss = 1e-5, .weights = 1e-5f});
  }
  // AdamW's first steps have the gradient's sign, which bf16 turns where the gradient is near zero:
  // of the weights nothing can be said but by what they do.
  const TempFolder folder;
  const auto mode = Quantised(program::Quantization::kInt8, program::DType::kBF16);
  ExpectTheCpus(MakeAttempt(folder, mode),
                {.loss = 2e-2, .weights = std::numeric_limits<float>::infinity()});
}

TEST(GpuAttemptTest, AModelInBf16IsNearThatOfTheCpu) {
  const TempFolder folder;
  ExpectTheCpus(MakeAttempt(folder, program::FullMode(program::DType::kBF16)),
                {.loss = 2e-2, .weights = 2e-2f});
}

// From the checkpoint of the first step, whose state may go elsewhere: a GPU's kernels change what
// lies on the host as they change their own.
TEST(GpuAttemptTest, AResumedRunIsTheUninterruptedRun) {
  for (const program::TrainingMode& mode :
       {EveryAdapter(), program::FullMode(program::DType::kBF16)}) {
    const TempFolder folder;
    const AttemptOptions first = OnGpu(MakeAttempt(folder, mode));
    const AttemptResult whole = RunToEnd(*OpenTestGpu(), first);
    AttemptOptions second = first;
    second.mode.optimizer_on_host = !mode.lora;
    second.epoch = 2;
    second.resume_from = first.checkpoints_dir + "/step-000001.e1";
    second.previous_metrics = first.attempt_dir + "/metrics.jsonl";
    second.attempt_dir += "-again";
    second.checkpoints_dir += "-again";
    const AttemptResult resumed = RunToEnd(*OpenTestGpu(), second);
    EXPECT_EQ(resumed.verified_loss, whole.verified_loss);
    EXPECT_EQ(resumed.progress.loss, whole.progress.loss);
    const std::string one = first.checkpoints_dir + "/step-000002.e1";
    const std::string two = second.checkpoints_dir + "/step-000002.e2";
    EXPECT_TRUE(ReadText(checkpoint::WeightsFileOf(one)) ==
                ReadText(checkpoint::WeightsFileOf(two)));
    EXPECT_TRUE(ReadText(one + "/optimizer.safetensors") ==
                ReadText(two + "/optimizer.safetensors"));
  }
}

// The cap that was predicted for the GPU is reached and enough, and one byte less is not.
TEST(GpuAttemptTest, ThePeakIsThePredictedOne) {
  program::TrainingMode on_host = program::FullMode(program::DType::kBF16);
  on_host.optimizer_on_host = true;
  for (const program::TrainingMode& mode :
       {program::LoraMode(), program::FullMode(program::DType::kBF16), on_host,
        Quantised(program::Quantization::kNf4, program::DType::kBF16)}) {
    const TempFolder folder;
    AttemptOptions attempt = OnGpu(MakeAttempt(folder, mode));
    attempt.context_bytes = 1'234'567;
    attempt.cap_bytes = PredictionOf(attempt).bytes.total();
    EXPECT_EQ(RunToEnd(*OpenTestGpu(), attempt).measured_peak_bytes, attempt.cap_bytes);
    --attempt.cap_bytes;
    const auto gpu = OpenTestGpu();
    EXPECT_EQ(Trainer::Create(attempt, *gpu).status().code(), absl::StatusCode::kResourceExhausted);
  }
}

// By the driver's own count, in its pages, whatever the number of tensors; and all of it goes back.
TEST(GpuAttemptTest, TheDriverGivesNoMoreThanWasPredicted) {
  for (const program::TrainingMode& mode :
       {EveryAdapter(), program::FullMode(program::DType::kBF16)}) {
    const TempFolder folder;
    const AttemptOptions attempt = OnGpu(MakeAttempt(folder, mode));
    const program::Components bytes = PredictionOf(attempt).bytes;
    EXPECT_EQ(bytes.held() % program::kGpuPageBytes, 0);
    const auto gpu = OpenTestGpu();
    const int64_t before = gpu->runtime().memory().free_bytes;
    auto trainer = Trainer::Create(attempt, *gpu);
    SNUG_ASSERT_OK(trainer);
    EXPECT_LE(before - gpu->runtime().memory().free_bytes, bytes.held());
    trainer->reset();
    EXPECT_EQ(gpu->runtime().memory().free_bytes, before);
  }
}

}  // namespace
}  // namespace snug::train
