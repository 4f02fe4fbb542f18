// A whole attempt in this process, reporting to nobody: what it leaves on the disk, and that one
// which goes on from a checkpoint leaves the same, to the bit.
#include "worker/train/run_attempt.h"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/checkpoint/testbed.h"
#include "tests/worker/execute/toy_run.h"
#include "tests/worker/train/toy_job.h"

namespace snug::train {
namespace {

using checkpoint::ReadText;
using checkpoint::RunState;
using checkpoint::TempFolder;
using checkpoint::WriteText;
using ::testing::HasSubstr;
using Outcome = AttemptResult::Outcome;

// 11 rows in micro-batches of 2, two per step: the last step of an epoch has one, of one row.
const std::vector<int64_t> kRows = {7, 20, 3, 12, 2, 9, 16, 5, 8, 11, 4};
constexpr int64_t kSteps = 7;

AttemptResult RunToEnd(const AttemptOptions& attempt) {
  const std::atomic<bool> nobody_stops_it = false;
  const auto link = link::WorkerLink::Dial(attempt);
  return RunAttempt(attempt, execute::TestDevice(), *link, nobody_stops_it);
}

// Every step leaves a checkpoint, every second one an evaluation where there is a set for it.
TrainingOptions Training(bool packing) {
  TrainingOptions training = ToyTraining();
  training.max_steps = kSteps;
  training.save_steps = 1;
  training.save_total_limit = 2 * kSteps;
  training.eval_steps = 2;
  training.packing = packing;
  training.max_grad_norm = 1.0;
  training.weight_decay = 0.01;
  return training;
}

AttemptOptions MakeAttempt(const TempFolder& folder, const program::TrainingMode& mode,
                           bool packing) {
  const ToyModel model;
  WriteModel(folder / "model", model);
  WriteData(folder / "data", kRows, model.sizes.vocabulary);
  return ToyAttempt(folder.path(), mode, Training(packing));
}

program::TrainingMode LoraWithDropout() {
  program::TrainingMode mode = program::LoraMode();
  mode.adapter.rank = 4;
  mode.adapter.dropout = 0.25;
  return mode;
}

std::string CheckpointOf(const AttemptOptions& attempt, int64_t step) {
  return absl::StrCat(attempt.checkpoints_dir, "/step-00000", step, ".e", attempt.epoch);
}

// The attempt after `first`, from its checkpoint of `step`, with folders of its own.
AttemptOptions After(const AttemptOptions& first, int64_t step) {
  AttemptOptions second = first;
  second.epoch = 2;
  second.resume_from = CheckpointOf(first, step);
  second.previous_metrics = first.attempt_dir + "/metrics.jsonl";
  second.attempt_dir = absl::StrCat(first.attempt_dir, "-from-", step);
  second.checkpoints_dir = absl::StrCat(first.checkpoints_dir, "-from-", step);
  return second;
}

// Lines of metrics.jsonl without what a clock gave.
std::vector<std::string> Metrics(const std::string& folder) {
  std::vector<std::string> lines;
  std::istringstream text(ReadText(folder + "/metrics.jsonl"));
  for (std::string line; std::getline(text, line);) {
    nlohmann::ordered_json json = nlohmann::ordered_json::parse(line);
    json.erase("tokens_per_second");
    json.erase("step_seconds");
    lines.push_back(json.dump());
  }
  return lines;
}

void ExpectSameCheckpoint(const std::string& one, const std::string& two) {
  for (const char* file : {"weights.safetensors", "optimizer.safetensors"}) {
    EXPECT_TRUE(ReadText(absl::StrCat(one, "/", file)) == ReadText(absl::StrCat(two, "/", file)))
        << two << "/" << file;
  }
  const auto a = checkpoint::Verify(one), b = checkpoint::Verify(two);
  SNUG_ASSERT_OK(a);
  SNUG_ASSERT_OK(b);
  EXPECT_EQ(a->data_epoch, b->data_epoch);
  EXPECT_EQ(a->data_micro_batch, b->data_micro_batch);
  EXPECT_EQ(a->num_tokens, b->num_tokens);
  EXPECT_EQ(a->last_loss, b->last_loss);
}

void ExpectSameOutput(const std::string& one, const std::string& two) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(one)) {
    const std::string name = entry.path().filename().string();
    if (name == "metrics.jsonl") continue;
    EXPECT_TRUE(ReadText(entry.path().string()) == ReadText(absl::StrCat(two, "/", name))) << name;
    ++files;
  }
  EXPECT_GE(files, 2);
  EXPECT_EQ(Metrics(one), Metrics(two));
}

void ExpectSameEnd(const AttemptResult& one, const AttemptResult& two) {
  ASSERT_EQ(two.outcome, Outcome::kSucceeded) << two.message;
  EXPECT_EQ(one.verified_loss, two.verified_loss);
  EXPECT_EQ(one.progress.eval_loss, two.progress.eval_loss);
  EXPECT_EQ(one.progress.num_tokens, two.progress.num_tokens);
  EXPECT_EQ(one.progress.loss, two.progress.loss);
}

// Goes on from every checkpoint, the last one among them, and compares all that follows.
void ExpectResumesLikeTheRunItself(const AttemptOptions& first) {
  const AttemptResult whole = RunToEnd(first);
  ASSERT_EQ(whole.outcome, Outcome::kSucceeded) << whole.message;
  int64_t within_an_epoch = 0;
  for (int64_t step = 1; step <= kSteps; ++step) {
    SCOPED_TRACE(absl::StrCat("from step ", step));
    const AttemptOptions second = After(first, step);
    ExpectSameEnd(whole, RunToEnd(second));
    for (int64_t later = step + 1; later <= kSteps; ++later) {
      ExpectSameCheckpoint(CheckpointOf(first, later), CheckpointOf(second, later));
    }
    ExpectSameOutput(first.attempt_dir + "/output", second.attempt_dir + "/output");
    EXPECT_EQ(Metrics(first.attempt_dir), Metrics(second.attempt_dir));
    within_an_epoch += checkpoint::Verify(second.resume_from)->data_micro_batch > 0 ? 1 : 0;
  }
  EXPECT_GE(within_an_epoch, 3);
}

TEST(RunAttemptTest, ResumedLoraWithDropoutAndEvaluationIsTheUninterruptedRun) {
  const TempFolder folder;
  WriteData(folder / "eval", {9, 14, 6}, ToyModel().sizes.vocabulary, /*seed=*/5);
  const AttemptOptions attempt = MakeAttempt(folder, LoraWithDropout(), /*packing=*/false);
  ExpectResumesLikeTheRunItself(attempt);
  // Steps 2, 4, 6 and the last: each evaluated once, by whichever attempt.
  const auto lines = Metrics(After(attempt, 4).attempt_dir);
  EXPECT_EQ(lines.size(), static_cast<size_t>(kSteps + 4));
}

TEST(RunAttemptTest, ResumedFullPackedRunIsTheUninterruptedRun) {
  const TempFolder folder;
  AttemptOptions attempt = MakeAttempt(folder, program::FullMode(), /*packing=*/true);
  attempt.training.max_seq_length = 24;  // More than one sequence per epoch.
  ExpectResumesLikeTheRunItself(ToyAttempt(folder.path(), attempt.mode, attempt.training));
}

// A mask that did not depend on the step would pass the comparison above as well.
TEST(RunAttemptTest, DropoutChangesTheRun) {
  const TempFolder folder;
  AttemptOptions attempt = MakeAttempt(folder, LoraWithDropout(), /*packing=*/false);
  const double with = RunToEnd(attempt).verified_loss;
  attempt.mode.adapter.dropout = 0.0;
  attempt.attempt_dir = folder / "without";
  attempt.checkpoints_dir = folder / "without/checkpoints";
  const AttemptResult without = RunToEnd(attempt);
  ASSERT_EQ(without.outcome, Outcome::kSucceeded) << without.message;
  EXPECT_NE(with, without.verified_loss);
}

// The evaluation that was reported before the worker died is the one that its export must
// reproduce: were it made anew, nobody would notice that it differs.
TEST(RunAttemptTest, AnExportMustReproduceTheLossReportedByTheAttemptBefore) {
  const TempFolder folder;
  WriteData(folder / "eval", {9, 14, 6}, ToyModel().sizes.vocabulary, /*seed=*/5);
  const AttemptOptions first = MakeAttempt(folder, program::LoraMode(), /*packing=*/false);
  const AttemptResult whole = RunToEnd(first);
  ASSERT_EQ(whole.outcome, Outcome::kSucceeded) << whole.message;
  AttemptOptions second = After(first, kSteps);
  second.previous_metrics = folder / "other.jsonl";
  std::string lines = ReadText(first.attempt_dir + "/metrics.jsonl");
  const size_t last = lines.rfind("{\"eval_loss\":");
  lines = lines.substr(0, last) +
          absl::StrCat("{\"eval_loss\":0.5,\"global_step\":", kSteps, ",\"epoch\":2.3}\n");
  WriteText(second.previous_metrics, lines);
  const AttemptResult resumed = RunToEnd(second);
  EXPECT_EQ(resumed.outcome, Outcome::kFailed);
  EXPECT_EQ(resumed.reason, "DATA_LOSS");
  EXPECT_FALSE(std::filesystem::exists(second.attempt_dir + "/output"));
}

// Folders of an attempt that nobody made before.
TEST(RunAttemptTest, MakesTheFoldersItWritesTo) {
  const TempFolder folder;
  AttemptOptions attempt = MakeAttempt(folder, program::LoraMode(), /*packing=*/false);
  attempt.attempt_dir = folder / "jobs/a/attempts/1";
  attempt.checkpoints_dir = folder / "jobs/a/checkpoints";
  attempt.training.max_steps = 1;
  const AttemptResult result = RunToEnd(attempt);
  EXPECT_EQ(result.outcome, Outcome::kSucceeded) << result.message;
  SNUG_ASSERT_OK(checkpoint::Verify(CheckpointOf(attempt, 1)));
  EXPECT_TRUE(std::filesystem::exists(attempt.attempt_dir + "/output/adapter_model.safetensors"));
}

// The step before is kept, in metrics and as a checkpoint; nothing is exported.
TEST(RunAttemptTest, ALossThatIsNotFiniteEndsTheAttempt) {
  const TempFolder folder;
  AttemptOptions attempt = MakeAttempt(folder, program::FullMode(), /*packing=*/false);
  attempt.training.learning_rate = 1e38;
  attempt.training.schedule = Schedule::kConstant;
  const AttemptResult result = RunToEnd(attempt);
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_EQ(result.reason, "NON_FINITE");
  EXPECT_EQ(result.failure_class, FailureClass::kUser);
  EXPECT_THAT(result.message, HasSubstr("step 2: the loss is "));
  EXPECT_EQ(Metrics(attempt.attempt_dir).size(), 1u);
  EXPECT_FALSE(std::filesystem::exists(attempt.attempt_dir + "/output"));
}

}  // namespace
}  // namespace snug::train
