// A whole attempt in this process, reporting to nobody: what it leaves on the disk, and that one
// which goes on from a checkpoint leaves the same, to the bit.
#include "worker/train/run_attempt.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
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
#include "tests/worker/train/run_on.h"
#include "tests/worker/train/toy_job.h"
#include "worker/program/files/safetensors.h"

namespace {

std::atomic<bool> metrics_cannot_be_synced = false;

}  // namespace

// In place of the C library's: a disk that fails under one file, that of the first attempt.
extern "C" int fsync(int fd) {
  const std::string path = std::filesystem::read_symlink(absl::StrCat("/proc/self/fd/", fd));
  if (metrics_cannot_be_synced && path.ends_with("/attempt-1/metrics.jsonl")) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fsync, fd));
}

namespace snug::train {
namespace {

using checkpoint::ReadText;
using checkpoint::RunState;
using checkpoint::TempFolder;
using checkpoint::WriteText;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Outcome = AttemptResult::Outcome;

// 11 rows in micro-batches of 2, two per step: the last step of an epoch has one, of one row.
const std::vector<int64_t> kRows = {7, 20, 3, 12, 2, 9, 16, 5, 8, 11, 4};
constexpr int64_t kSteps = 7;

AttemptResult RunToEnd(const AttemptOptions& attempt) {
  return RunOn(execute::TestDevice(), attempt);
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
                           bool packing, const ToyModel& model = {}) {
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
    json.erase("time");
    json.erase("eval_runtime");
    lines.push_back(json.dump());
  }
  return lines;
}

void ExpectSameCheckpoint(const std::string& one, const std::string& two) {
  EXPECT_TRUE(ReadText(checkpoint::WeightsFileOf(one)) == ReadText(checkpoint::WeightsFileOf(two)))
      << two;
  EXPECT_TRUE(ReadText(one + "/optimizer.safetensors") == ReadText(two + "/optimizer.safetensors"))
      << two;
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
  AttemptOptions attempt = MakeAttempt(folder, LoraWithDropout(), /*packing=*/false);
  attempt.prompts_file = folder / "prompts.json";
  WritePrompts(attempt.prompts_file, {3, 7}, ToyModel().sizes.vocabulary);
  attempt.training.samples = {.max_new_tokens = 6, .temperature = 1.0, .top_p = 0.9};
  ExpectResumesLikeTheRunItself(attempt);
  const std::string samples = ReadText(attempt.attempt_dir + "/samples.jsonl");
  EXPECT_EQ(std::count(samples.begin(), samples.end(), '\n'), 8);
  for (int64_t step = 1; step <= kSteps; ++step)
    EXPECT_EQ(ReadText(After(attempt, step).attempt_dir + "/samples.jsonl"), samples) << step;
  // Steps 2, 4, 6 and the last: each evaluated once, by whichever attempt.
  const auto lines = Metrics(After(attempt, 4).attempt_dir);
  EXPECT_EQ(lines.size(), static_cast<size_t>(kSteps + 4));
}

// All that is random at once: row order, dropout of adapters and attention, noise on the
// embeddings; under recompute as well.
TEST(RunAttemptTest, ResumedRunWithNoiseAndGroupedRowsIsTheUninterruptedRun) {
  const TempFolder folder;
  AttemptOptions attempt =
      MakeAttempt(folder, LoraWithDropout(), /*packing=*/false, {.attention_dropout = 0.2});
  attempt.training.neftune_alpha = 5.0;
  attempt.training.group_by_length = true;
  ExpectResumesLikeTheRunItself(attempt);
  const auto program =
      *program::BuildProgram(*program::ReadModelConfig(attempt.model_dir), attempt.mode);
  AttemptOptions recomputed = attempt;
  recomputed.plan = program::NamedPlanOf(program, program::RecomputePlan(program, 2));
  recomputed.attempt_dir = folder / "recomputed";
  recomputed.checkpoints_dir = folder / "recomputed/checkpoints";
  ASSERT_EQ(RunToEnd(recomputed).outcome, Outcome::kSucceeded);
  EXPECT_EQ(Metrics(attempt.attempt_dir), Metrics(recomputed.attempt_dir));
  AttemptOptions silent = attempt;
  silent.training.neftune_alpha = 0.0;
  silent.attempt_dir = folder / "silent";
  silent.checkpoints_dir = folder / "silent/checkpoints";
  ASSERT_EQ(RunToEnd(silent).outcome, Outcome::kSucceeded);
  EXPECT_NE(Metrics(attempt.attempt_dir), Metrics(silent.attempt_dir));
}

TEST(RunAttemptTest, ResumedFullPackedRunIsTheUninterruptedRun) {
  const TempFolder folder;
  AttemptOptions attempt = MakeAttempt(folder, program::FullMode(), /*packing=*/true);
  attempt.training.max_seq_length = 24;  // More than one sequence per epoch.
  ExpectResumesLikeTheRunItself(ToyAttempt(folder.path(), attempt.mode, attempt.training));
}

// The masters go on, not the weights that are computed with: those have lost what they had.
TEST(RunAttemptTest, ResumedFullRunInBf16IsTheUninterruptedRun) {
  const TempFolder folder;
  const auto mode = program::FullMode(program::DType::kBF16);
  ExpectResumesLikeTheRunItself(MakeAttempt(folder, mode, /*packing=*/false));
  const auto exported =
      program::ReadSafetensorsHeader(folder / "attempt-1/output/model.safetensors");
  SNUG_ASSERT_OK(exported);
  for (const auto& [key, entry] : *exported) EXPECT_EQ(entry.dtype, "BF16") << key;
}

// Codes and scales go on, byte for byte, and masters beside them.
TEST(RunAttemptTest, ResumedRunWithMomentsInEightBitsIsTheUninterruptedRun) {
  const TempFolder folder;
  program::TrainingMode mode = program::FullMode(program::DType::kBF16);
  mode.moments = program::MomentKind::k8Bit;
  const AttemptOptions attempt = MakeAttempt(folder, mode, false, {.sizes = {2, 64, 4, 2, 80, 61}});
  ExpectResumesLikeTheRunItself(attempt);
  const auto state =
      *program::ReadSafetensorsHeader(CheckpointOf(attempt, 1) + "/optimizer.safetensors");
  const std::string q = "model.layers.0.self_attn.q_proj.weight.exp_avg";
  EXPECT_EQ(state.at(q).dtype, "U8");
  EXPECT_EQ(state.at(q + ".absmax").shape, std::vector<int64_t>{16});
  EXPECT_EQ(state.at("model.embed_tokens.weight.exp_avg").dtype, "F32");
}

// In fp32 the merged model is the adapter's to rounding; nothing of it is the base's. In bf16 its
// weights are rounded once more. Within the cap that was predicted for the training alone.
void ExpectMergedLoss(program::TrainingMode mode) {
  mode.adapter.alpha = 256.0;
  mode.adapter.modules_to_save = {"model.norm"};
  for (const char* dtype : {"F32", "BF16", "F16"}) {
    SCOPED_TRACE(dtype);
    const TempFolder folder;
    AttemptOptions attempt = MakeAttempt(folder, mode, /*packing=*/false);
    WriteModel(folder / "model", {.dtype = dtype});
    attempt.merge = true;
    attempt.training.save_steps = 0;
    attempt.training.learning_rate = 1e-2;
    attempt.cap_bytes = PredictionOf(attempt).bytes.total();
    const AttemptResult result = RunToEnd(attempt);
    ASSERT_EQ(result.outcome, Outcome::kSucceeded) << result.message;
    ASSERT_TRUE(result.merged_loss.has_value());
    const double tolerance = std::string(dtype) == "F32" ? 1e-6 : 2e-2;
    EXPECT_NEAR(*result.merged_loss, result.verified_loss, tolerance * result.verified_loss);
    EXPECT_LE(result.measured_peak_bytes, attempt.cap_bytes);
    const std::string merged = result.output_dir + "/merged";
    EXPECT_EQ(ReadText(merged + "/config.json"), ReadText(folder / "model/config.json"));
    const auto index = program::ReadModelIndex(merged);
    SNUG_ASSERT_OK(index);
    for (const auto& [key, entry] : *index) EXPECT_EQ(entry.dtype, dtype) << key;
    EXPECT_NE(ReadText(merged + "/model.safetensors"),
              ReadText(folder / "model/model.safetensors"));
  }
}

TEST(RunAttemptTest, AMergedModelGivesTheLossOfTheAdapter) {
  ExpectMergedLoss(program::LoraMode());
}

TEST(RunAttemptTest, AMergedModelHasTheAdaptersOfHeadAndEmbedding) {
  ExpectMergedLoss(program::LoraMode({"lm_head", "embed_tokens"}));
}

// A mask that did not depend on the step would pass the comparison above as well.
TEST(RunAttemptTest, DropoutChangesTheRun) {
  const TempFolder folder;
  AttemptOptions attempt = MakeAttempt(folder, LoraWithDropout(), /*packing=*/false);
  const double with = RunToEnd(attempt).verified_loss;
  attempt.mode.adapter.dropout = 0.0;
  // Modules share their products now, so that a block has other values.
  attempt.plan = MakeAttempt(folder, attempt.mode, /*packing=*/false).plan;
  attempt.attempt_dir = folder / "without";
  attempt.checkpoints_dir = folder / "without/checkpoints";
  const AttemptResult without = RunToEnd(attempt);
  ASSERT_EQ(without.outcome, Outcome::kSucceeded) << without.message;
  EXPECT_NE(with, without.verified_loss);
}

// As the model's config.json wants it; evaluations, whose tape does not train, are without.
TEST(RunAttemptTest, DropoutOfAttentionChangesTrainingAlone) {
  std::vector<std::vector<std::string>> metrics;
  for (double rate : {0.0, 0.3}) {
    const TempFolder folder;
    WriteData(folder / "eval", {9, 14, 6}, ToyModel().sizes.vocabulary, /*seed=*/5);
    AttemptOptions attempt =
        MakeAttempt(folder, program::FullMode(), /*packing=*/false, {.attention_dropout = rate});
    attempt.training.learning_rate = 0.0;
    ASSERT_EQ(RunToEnd(attempt).outcome, Outcome::kSucceeded);
    metrics.push_back(Metrics(attempt.attempt_dir));
  }
  ASSERT_EQ(metrics[0].size(), metrics[1].size());
  for (size_t i = 0; i < metrics[0].size(); ++i) {
    const bool evaluation = metrics[0][i].find("eval_loss") != std::string::npos;
    EXPECT_EQ(metrics[0][i] == metrics[1][i], evaluation) << metrics[0][i];
  }
}

// An attempt whose evaluations get worse from some step on: the learning rate is far too high.
AttemptOptions Overshooting(const TempFolder& folder) {
  WriteData(folder / "eval", {9, 14, 6}, ToyModel().sizes.vocabulary, /*seed=*/5);
  AttemptOptions attempt = MakeAttempt(folder, program::LoraMode(), /*packing=*/false);
  attempt.training.learning_rate = 0.1;
  attempt.training.schedule = Schedule::kConstant;
  attempt.training.max_steps = 40;
  attempt.training.eval_steps = 1;
  attempt.training.save_steps = 3;
  attempt.training.save_total_limit = 1;
  attempt.training.best = {.load_at_end = true, .patience = 4};
  return attempt;
}

std::vector<double> EvaluationLosses(const AttemptOptions& attempt) {
  std::vector<double> losses;
  for (const std::string& line : Metrics(attempt.attempt_dir)) {
    const auto json = nlohmann::json::parse(line);
    if (json.contains("eval_loss")) losses.push_back(json["eval_loss"].get<double>());
  }
  return losses;
}

// It stops four evaluations behind the best one, whose weights are what it exports; they are still
// there although one checkpoint is kept.
TEST(RunAttemptTest, StopsEarlyAndExportsTheBest) {
  const TempFolder folder;
  const AttemptOptions attempt = Overshooting(folder);
  const AttemptResult result = RunToEnd(attempt);
  ASSERT_EQ(result.outcome, Outcome::kSucceeded) << result.message;
  const std::vector<double> losses = EvaluationLosses(attempt);
  const auto best = std::min_element(losses.begin(), losses.end());
  ASSERT_EQ(losses.end() - best, 5);
  EXPECT_LT(losses.size(), 40u);
  EXPECT_EQ(result.progress.global_step, static_cast<int64_t>(losses.size()));
  EXPECT_EQ(result.verified_loss, *best);
  EXPECT_NE(result.verified_loss, losses.back());
}

// Resumed from any of the checkpoints that are left, with what it knew of the best there.
TEST(RunAttemptTest, AResumedRunStopsAndExportsLikeTheRunItself) {
  const TempFolder folder;
  AttemptOptions attempt = Overshooting(folder);
  attempt.training.save_steps = 1;
  attempt.training.save_total_limit = 100;
  const AttemptResult whole = RunToEnd(attempt);
  ASSERT_EQ(whole.outcome, Outcome::kSucceeded) << whole.message;
  const auto steps = static_cast<int64_t>(EvaluationLosses(attempt).size());
  ASSERT_LT(steps, 10);
  for (int64_t step = 1; step <= steps; ++step) {
    SCOPED_TRACE(absl::StrCat("from step ", step));
    AttemptOptions second = After(attempt, step);
    second.epoch = static_cast<int32_t>(1 + step);
    second.checkpoints_dir = attempt.checkpoints_dir;
    const AttemptResult resumed = RunToEnd(second);
    ASSERT_EQ(resumed.outcome, Outcome::kSucceeded) << resumed.message;
    EXPECT_EQ(resumed.verified_loss, whole.verified_loss);
    EXPECT_EQ(Metrics(attempt.attempt_dir), Metrics(second.attempt_dir));
    ExpectSameOutput(attempt.attempt_dir + "/output", second.attempt_dir + "/output");
  }
}

// save_strategy best: the only checkpoints are those of a new best.
TEST(RunAttemptTest, SavesTheBestAloneAndEpochsAtTheirEnds) {
  const TempFolder folder;
  AttemptOptions attempt = Overshooting(folder);
  attempt.training.save_strategy = Strategy::kBest;
  attempt.training.save_total_limit = 100;
  attempt.training.eval_strategy = Strategy::kEpoch;  // Of three steps.
  attempt.training.max_steps = 9;
  attempt.training.best = {};
  ASSERT_EQ(RunToEnd(attempt).outcome, Outcome::kSucceeded);
  const std::vector<double> losses = EvaluationLosses(attempt);
  EXPECT_EQ(losses.size(), 3u);
  size_t bests = 0;
  for (size_t i = 0; i < losses.size(); ++i)
    bests += i == 0 || losses[i] < *std::min_element(losses.begin(), losses.begin() + i) ? 1 : 0;
  EXPECT_EQ(checkpoint::List(attempt.checkpoints_dir)->size(), bests);
}

// The lines of metrics with another loss in the last of them, an evaluation.
std::string WithLastEvaluation(const std::string& lines, double loss) {
  const size_t last = lines.rfind("{\"eval_loss\":");
  nlohmann::ordered_json line = nlohmann::ordered_json::parse(lines.substr(last));
  line["eval_loss"] = loss;
  return lines.substr(0, last) + line.dump() + "\n";
}

// The evaluation that was reported before the worker died is one that its checkpoint must give:
// were it made anew, nobody would notice that it differs. Other threads or another processor may
// have changed its last bits; the export is held against the loss of its own process.
TEST(RunAttemptTest, TheLossReportedByTheAttemptBeforeIsThatOfItsCheckpoint) {
  const TempFolder folder;
  WriteData(folder / "eval", {9, 14, 6}, ToyModel().sizes.vocabulary, /*seed=*/5);
  const AttemptOptions first = MakeAttempt(folder, program::LoraMode(), /*packing=*/false);
  const AttemptResult whole = RunToEnd(first);
  ASSERT_EQ(whole.outcome, Outcome::kSucceeded) << whole.message;
  const std::string lines = ReadText(first.attempt_dir + "/metrics.jsonl");
  const double loss = *whole.progress.eval_loss;

  AttemptOptions second = After(first, kSteps);
  second.previous_metrics = folder / "other.jsonl";
  WriteText(second.previous_metrics, WithLastEvaluation(lines, loss * (1.0 + 1e-3)));
  const AttemptResult refused = RunToEnd(second);
  EXPECT_EQ(refused.outcome, Outcome::kFailed);
  EXPECT_EQ(refused.reason, "DATA_LOSS");
  EXPECT_THAT(refused.message, HasSubstr(absl::StrCat("step ", kSteps, " was reported as ")));
  EXPECT_FALSE(std::filesystem::exists(second.attempt_dir + "/output"));

  second.attempt_dir += "-again";
  WriteText(second.previous_metrics, WithLastEvaluation(lines, loss * (1.0 + 1e-6)));
  const AttemptResult resumed = RunToEnd(second);
  ASSERT_EQ(resumed.outcome, Outcome::kSucceeded) << resumed.message;
  EXPECT_EQ(resumed.verified_loss, whole.verified_loss);
  EXPECT_NE(resumed.progress.eval_loss, whole.progress.eval_loss);  // As it was reported.
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
  attempt.training.save_steps = 0;  // A checkpoint would refuse the weights before.
  const AttemptResult result = RunToEnd(attempt);
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_EQ(result.reason, "NON_FINITE");
  EXPECT_EQ(result.failure_class, FailureClass::kUser);
  EXPECT_THAT(result.message, HasSubstr("step 2: the loss is "));
  EXPECT_EQ(Metrics(attempt.attempt_dir).size(), 1u);
  EXPECT_FALSE(std::filesystem::exists(attempt.attempt_dir + "/output"));
}

// The step's own loss is finite, but not the weights that it leaves: a checkpoint of them is not
// merely left out.
TEST(RunAttemptTest, WeightsThatAreNotFiniteEndTheAttempt) {
  const TempFolder folder;
  AttemptOptions attempt = MakeAttempt(folder, program::FullMode(), /*packing=*/false);
  attempt.training.learning_rate = 1e39;
  attempt.training.schedule = Schedule::kConstant;
  const AttemptResult result = RunToEnd(attempt);
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_EQ(result.reason, "NON_FINITE");
  EXPECT_THAT(result.message, AllOf(HasSubstr("step 1: "), HasSubstr(" is NaN or infinite")));
}

// Who resumes from a checkpoint reads the metrics up to its step, so there is none without them.
TEST(RunAttemptTest, MetricsThatCannotBeSyncedCostTheCheckpointsAndNotTheRun) {
  const TempFolder folder;
  const AttemptOptions attempt = MakeAttempt(folder, program::LoraMode(), /*packing=*/false);
  metrics_cannot_be_synced = true;
  const AttemptResult result = RunToEnd(attempt);
  metrics_cannot_be_synced = false;
  EXPECT_EQ(result.outcome, Outcome::kSucceeded) << result.message;
  EXPECT_EQ(checkpoint::List(attempt.checkpoints_dir)->size(), 0u);
}

// Old checkpoints cannot go, as the newest in the folder is damaged: it is logged, and they stay.
TEST(RunAttemptTest, CheckpointsThatCannotBePrunedDoNotEndTheRun) {
  const TempFolder folder;
  AttemptOptions attempt = MakeAttempt(folder, program::LoraMode(), /*packing=*/false);
  attempt.training.save_total_limit = 1;
  std::filesystem::create_directories(attempt.checkpoints_dir + "/step-000099.e1");
  const AttemptResult result = RunToEnd(attempt);
  EXPECT_EQ(result.outcome, Outcome::kSucceeded) << result.message;
  EXPECT_EQ(checkpoint::List(attempt.checkpoints_dir)->size(), static_cast<size_t>(kSteps + 1));
}

}  // namespace
}  // namespace snug::train
