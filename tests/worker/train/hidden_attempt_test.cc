// A whole attempt on a device whose memory the host cannot touch (hidden_device.h): it leaves the
// files that the same attempt leaves on the CPU, byte for byte, and takes what was predicted.
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/worker/checkpoint/testbed.h"
#include "tests/worker/execute/hidden_device.h"
#include "tests/worker/execute/toy_run.h"
#include "tests/worker/train/run_on.h"
#include "tests/worker/train/toy_job.h"

namespace snug::train {
namespace {

using checkpoint::ReadText;
using checkpoint::TempFolder;
using execute::Device;
using execute::HiddenDevice;
using execute::TestDevice;
using Outcome = AttemptResult::Outcome;

constexpr int64_t kSteps = 4;

AttemptResult RunToEnd(Device& device, const AttemptOptions& attempt) {
  AttemptResult result = RunOn(device, attempt);
  EXPECT_EQ(result.outcome, Outcome::kSucceeded) << device.name() << ": " << result.message;
  return result;
}

// Everything at once: an evaluation, prompts, clipping, a checkpoint after every step.
AttemptOptions MakeAttempt(const TempFolder& folder, const program::TrainingMode& mode) {
  const int64_t vocabulary = ToyModel().sizes.vocabulary;
  WriteModel(folder / "model", {});
  WriteData(folder / "data", {7, 20, 3, 12, 2, 9, 16}, vocabulary);
  WriteData(folder / "eval", {9, 14, 6}, vocabulary, /*seed=*/5);
  WritePrompts(folder / "prompts.json", {3, 7}, vocabulary);
  TrainingOptions training = ToyTraining();
  training.max_steps = kSteps;
  training.save_steps = 1;
  training.save_total_limit = kSteps;
  training.eval_steps = 2;
  training.max_grad_norm = 0.5;
  training.weight_decay = 0.01;
  training.samples = {.max_new_tokens = 6, .temperature = 1.0, .top_p = 0.9};
  AttemptOptions attempt = ToyAttempt(folder.path(), mode, training);
  attempt.prompts_file = folder / "prompts.json";
  return attempt;
}

// The same with folders of its own.
AttemptOptions Beside(AttemptOptions attempt, const std::string& name) {
  attempt.attempt_dir += name;
  attempt.checkpoints_dir += name;
  return attempt;
}

// Without what a clock gave.
std::string WithoutTimes(const std::string& metrics) {
  std::string lines;
  std::istringstream text(metrics);
  for (std::string line; std::getline(text, line);) {
    nlohmann::ordered_json json = nlohmann::ordered_json::parse(line);
    for (const char* varies : {"tokens_per_second", "step_seconds", "eval_runtime", "time"})
      json.erase(varies);
    absl::StrAppend(&lines, json.dump(), "\n");
  }
  return lines;
}

// Contents by path.
std::map<std::string, std::string> FilesOf(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const std::string path = std::filesystem::relative(entry.path(), folder).string();
    const std::string text = ReadText(entry.path().string());
    files[path] = path.ends_with("metrics.jsonl") ? WithoutTimes(text) : text;
  }
  return files;
}

void ExpectSameFiles(const std::string& one, const std::string& two, size_t at_least) {
  const auto a = FilesOf(one), b = FilesOf(two);
  EXPECT_GE(a.size(), at_least);
  EXPECT_EQ(a.size(), b.size());
  for (const auto& [path, text] : a) {
    const auto other = b.find(path);
    ASSERT_NE(other, b.end()) << path;
    EXPECT_TRUE(text == other->second) << path;
  }
}

void ExpectSameEnd(const AttemptResult& one, const AttemptResult& two) {
  EXPECT_EQ(one.verified_loss, two.verified_loss);
  EXPECT_EQ(one.merged_loss, two.merged_loss);
  EXPECT_EQ(one.progress.loss, two.progress.loss);
  EXPECT_EQ(one.progress.grad_norm, two.progress.grad_norm);
  EXPECT_EQ(one.progress.eval_loss, two.progress.eval_loss);
  EXPECT_EQ(one.progress.eval_figures, two.progress.eval_figures);
}

// On both devices, and there once more from the checkpoint of the second step.
void ExpectTheCpusFiles(const AttemptOptions& here) {
  const AttemptOptions there = Beside(here, "-hidden");
  const AttemptResult result = RunToEnd(TestDevice(), here),
                      hidden = RunToEnd(HiddenDevice(), there);
  ExpectSameEnd(result, hidden);
  ExpectSameFiles(here.attempt_dir, there.attempt_dir, 5);
  ExpectSameFiles(here.checkpoints_dir, there.checkpoints_dir, 3 * kSteps);
  AttemptOptions second = Beside(there, "-again");
  second.epoch = 2;
  second.resume_from = there.checkpoints_dir + "/step-000002.e1";
  second.previous_metrics = there.attempt_dir + "/metrics.jsonl";
  ExpectSameEnd(result, RunToEnd(HiddenDevice(), second));
  ExpectSameFiles(here.attempt_dir, second.attempt_dir, 5);
  const std::string one = here.checkpoints_dir + "/step-000004.e1";
  const std::string two = second.checkpoints_dir + "/step-000004.e2";
  EXPECT_TRUE(ReadText(checkpoint::WeightsFileOf(one)) == ReadText(checkpoint::WeightsFileOf(two)));
  EXPECT_TRUE(ReadText(one + "/optimizer.safetensors") == ReadText(two + "/optimizer.safetensors"));
}

// Adapters of every kind, modules trained whole, and all of it merged.
TEST(HiddenAttemptTest, AnAdapterIsThatOfTheCpu) {
  const TempFolder folder;
  program::TrainingMode mode =
      program::LoraMode({"q_proj", "down_proj", "lm_head", "embed_tokens"});
  mode.adapter.modules_to_save = {"model.norm"};
  mode.adapter.dropout = 0.25;
  AttemptOptions attempt = MakeAttempt(folder, mode);
  attempt.merge = true;
  ExpectTheCpusFiles(attempt);
}

TEST(HiddenAttemptTest, AnAdapterBesideWholeMatricesIsThatOfTheCpu) {
  const TempFolder folder;
  program::TrainingMode mode = program::LoraMode();
  mode.adapter.modules_to_save = {"embed_tokens", "lm_head"};
  AttemptOptions attempt = MakeAttempt(folder, mode);
  attempt.merge = true;
  ExpectTheCpusFiles(attempt);
}

// Quantised anew by whoever resumes, to the same codes.
TEST(HiddenAttemptTest, AnAdapterBesideAQuantisedBaseIsThatOfTheCpu) {
  for (const auto kind : {program::Quantization::kNf4, program::Quantization::kInt8}) {
    const TempFolder folder;
    program::TrainingMode mode = program::LoraMode({"q_proj", "down_proj"}, program::DType::kBF16);
    mode.quantization = kind;
    ExpectTheCpusFiles(MakeAttempt(folder, mode));
  }
}

// Both devices round codes alike; the host copies both gradients, piece by piece.
TEST(HiddenAttemptTest, AnInexactGradientIsMeasuredAsOnTheCpu) {
  const TempFolder folder;
  AttemptOptions attempt = MakeAttempt(folder, program::FullMode());
  const auto program =
      *program::BuildProgram(*program::ReadModelConfig(attempt.model_dir), attempt.mode);
  attempt.plan =
      program::NamedPlanOf(program, *program::PinnedPlan(program, {{"*", program::Stash::kInt8}}));
  attempt.drift_steps = 200;
  const AttemptResult result = RunToEnd(TestDevice(), attempt),
                      hidden = RunToEnd(HiddenDevice(), Beside(attempt, "-hidden"));
  ExpectSameEnd(result, hidden);
  ASSERT_EQ(result.progress.drift.count("int8"), 1u);
  ASSERT_EQ(hidden.progress.drift.count("int8"), 1u);
  const KindDrift &here = result.progress.drift.at("int8"),
                  &there = hidden.progress.drift.at("int8");
  EXPECT_EQ(here.global_step, 2);
  EXPECT_EQ(here.tokens, there.tokens);
  EXPECT_GT(here.relative_error, 0.0);
  EXPECT_EQ(here.relative_error, there.relative_error);
  EXPECT_EQ(here.cosine, there.cosine);
}

// With masters, of which the weights are rounded copies.
TEST(HiddenAttemptTest, AModelInBf16IsThatOfTheCpu) {
  const TempFolder folder;
  ExpectTheCpusFiles(MakeAttempt(folder, program::FullMode(program::DType::kBF16)));
}

// So many documents' labels: a class below three, or three numbers of which each is 0 or 1.
ToyTensor LabelsOf(program::Problem problem, int64_t rows) {
  std::string classes, numbers;
  for (int32_t row = 0; row < rows; ++row) {
    const int32_t label = row % 3;
    classes.append(reinterpret_cast<const char*>(&label), sizeof(label));
    for (int32_t v = 0; v < 3; ++v) {
      const auto number = static_cast<float>((row + v) & 1);
      numbers.append(reinterpret_cast<const char*>(&number), sizeof(number));
    }
  }
  if (problem == program::Problem::kSingleLabel) return {"labels", "I32", {rows}, classes};
  return {"labels", "F32", {rows, 3}, numbers};
}

// Whose predictions lie on the device when it is evaluated.
TEST(HiddenAttemptTest, AClassifiersMetricsAreThoseOfTheCpu) {
  for (const auto problem : {program::Problem::kSingleLabel, program::Problem::kMultiLabel,
                             program::Problem::kRegression}) {
    const TempFolder folder;
    const program::TrainingMode mode = program::FullMode(program::DType::kBF16);
    AttemptOptions attempt = MakeAttempt(folder, mode);
    const int64_t vocabulary = ToyModel().sizes.vocabulary;
    WriteData(folder / "data", {7, 20, 3, 12, 2, 9, 16}, vocabulary, 2, {LabelsOf(problem, 7)});
    WriteData(folder / "eval", {9, 14, 6}, vocabulary, 5, {LabelsOf(problem, 3)});
    attempt.task = {program::Task::kSequenceClassification, 3, problem};
    attempt.prompts_file = "";
    program::ModelConfig config = *program::ReadModelConfig(attempt.model_dir);
    ASSERT_TRUE(program::ChooseTask(attempt.task, config).ok());
    const program::Program program = *program::BuildProgram(config, mode);
    attempt.plan = program::NamedPlanOf(program, program::RecomputePlan(program, 0));
    const AttemptOptions there = Beside(attempt, "-hidden");
    const AttemptResult result = RunToEnd(TestDevice(), attempt);
    EXPECT_GE(result.progress.eval_figures.size(), 3u);
    ExpectSameEnd(result, RunToEnd(HiddenDevice(), there));
    ExpectSameFiles(attempt.attempt_dir, there.attempt_dir, 3);
  }
}

// A run that takes the weights of its best evaluation back.
TEST(HiddenAttemptTest, TheBestIsThatOfTheCpu) {
  const TempFolder folder;
  AttemptOptions attempt = MakeAttempt(folder, program::LoraMode());
  attempt.training.learning_rate = 0.1;
  attempt.training.max_grad_norm = 0.0;
  attempt.training.max_steps = 12;
  attempt.training.eval_steps = 1;
  attempt.training.save_total_limit = 1;
  attempt.training.best = {.load_at_end = true, .patience = 3};
  const AttemptOptions there = Beside(attempt, "-hidden");
  const AttemptResult result = RunToEnd(TestDevice(), attempt);
  EXPECT_LT(result.progress.global_step, 12);
  ExpectSameEnd(result, RunToEnd(HiddenDevice(), there));
  ExpectSameFiles(attempt.attempt_dir, there.attempt_dir, 5);
}

// To the byte: what the same tape takes on the CPU, the weights as copies, and the norm's
// workspace.
TEST(HiddenAttemptTest, ThePeakIsThePredictedOne) {
  for (const program::TrainingMode& mode :
       {program::LoraMode(), program::FullMode(program::DType::kBF16)}) {
    const TempFolder folder;
    AttemptOptions attempt = MakeAttempt(folder, mode);
    attempt.context_bytes = 1'234'567;
    const program::Components bytes = PredictionOf(attempt).bytes;
    attempt.cap_bytes = bytes.total() - bytes.data + program::kNormBytes;  // Data is the host's.
    EXPECT_EQ(RunToEnd(HiddenDevice(), attempt).measured_peak_bytes, attempt.cap_bytes);
  }
}

}  // namespace
}  // namespace snug::train
