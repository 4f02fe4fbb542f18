// What an attempt leaves when it ends otherwise than after its last step, or something fails beside
// its training: a stop that keeps what there is, a checkpoint of another job, answers to prompts
// that could not be written, a kill between them and their evaluation's line, a merge that
// overflows, an op that takes more than it declares.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/checkpoint/testbed.h"
#include "tests/worker/execute/toy_run.h"
#include "tests/worker/train/run_on.h"
#include "tests/worker/train/toy_job.h"
#include "worker/train/failure.h"

namespace snug::train {
namespace {

using checkpoint::ReadText;
using checkpoint::TempFolder;
using checkpoint::WriteText;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Outcome = AttemptResult::Outcome;

constexpr int64_t kSteps = 4;

AttemptResult RunToEnd(const AttemptOptions& attempt) {
  return RunOn(execute::TestDevice(), attempt);
}

// Evaluated after every second step and saved after every one.
AttemptOptions MakeAttempt(const TempFolder& folder, const ToyModel& model = {}) {
  WriteModel(folder / "model", model);
  WriteData(folder / "data", {7, 20, 3, 12, 2, 9}, model.sizes.vocabulary);
  TrainingOptions training = ToyTraining();
  training.max_steps = kSteps;
  training.save_steps = 1;
  training.save_total_limit = kSteps;
  training.eval_steps = 2;
  return ToyAttempt(folder.path(), program::LoraMode(), training);
}

AttemptOptions WithPrompts(const TempFolder& folder) {
  const int64_t vocabulary = ToyModel().sizes.vocabulary;
  WriteData(folder / "eval", {9, 14, 6}, vocabulary, /*seed=*/5);
  WritePrompts(folder / "prompts.json", {3, 7}, vocabulary);
  AttemptOptions attempt = MakeAttempt(folder);
  attempt.prompts_file = folder / "prompts.json";
  attempt.training.samples = {.max_new_tokens = 6};
  return attempt;
}

// Asks to export what there is when that step has been reported.
class KeepingLink final : public link::WorkerLink {
 public:
  explicit KeepingLink(int64_t at) : at_(at) {}
  void ReportProgress(const TrainingProgress& progress, const link::MemoryReport&) override {
    step_ = progress.global_step;
  }
  void ReportCheckpoint(const link::CheckpointReport&) override {}
  void ReportResult(const AttemptResult&) override {}
  link::Command command() const override {
    return step_ >= at_ ? link::Command::kExportAndStop : link::Command::kNone;
  }
  std::optional<PlanOrder> TakePlanOrder() override { return std::nullopt; }
  void AnswerPlanOrder(const PlanAnswer&) override {}
  std::optional<PlanOrder> AskForSmallerPlan(const Shortage&) override { return std::nullopt; }

 private:
  const int64_t at_;
  int64_t step_ = 0;
};

AttemptResult KeepAt(int64_t step, const AttemptOptions& attempt) {
  const std::atomic<bool> nobody_terminates_it = false;
  KeepingLink link(step);
  execute::TestDevice().allocator().SetCap(INT64_MAX);
  return RunAttempt(attempt, execute::TestDevice(), link, nobody_terminates_it);
}

TEST(AttemptEndTest, AStopThatKeepsExportsAndSavesWhatThereIs) {
  const TempFolder folder;
  const AttemptOptions attempt = MakeAttempt(folder);
  const AttemptResult result = KeepAt(3, attempt);
  ASSERT_EQ(result.outcome, Outcome::kSucceeded) << result.message;
  EXPECT_EQ(result.progress.global_step, 3);
  EXPECT_TRUE(std::filesystem::exists(result.output_dir + "/adapter_model.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(attempt.checkpoints_dir + "/step-000003.e1"));
  EXPECT_FALSE(std::filesystem::exists(attempt.checkpoints_dir + "/step-000004.e1"));
}

// It saves at its end as it would have at its last step, and not where it never saves.
TEST(AttemptEndTest, AStopThatKeepsSavesOnlyWhatIsSavedAtAll) {
  const TempFolder folder;
  AttemptOptions attempt = MakeAttempt(folder);
  attempt.training.save_steps = 100;
  ASSERT_EQ(KeepAt(1, attempt).outcome, Outcome::kSucceeded);
  EXPECT_TRUE(std::filesystem::exists(attempt.checkpoints_dir + "/step-000001.e1"));
  attempt.training.save_strategy = Strategy::kNo;
  attempt.attempt_dir += "-unsaved";
  attempt.checkpoints_dir += "-unsaved";
  ASSERT_EQ(KeepAt(1, attempt).outcome, Outcome::kSucceeded);
  EXPECT_FALSE(std::filesystem::exists(attempt.checkpoints_dir));
}

TEST(AttemptEndTest, AStopThatKeepsBeforeTheFirstStepIsAStop) {
  const TempFolder folder;
  const AttemptOptions attempt = MakeAttempt(folder);
  EXPECT_EQ(KeepAt(0, attempt).outcome, Outcome::kStopped);
  EXPECT_FALSE(std::filesystem::exists(attempt.attempt_dir + "/output"));
}

// It is the parent's, at the very step at which the job begins, or it is refused.
TEST(AttemptEndTest, ACheckpointOfAnotherJobIsTheParentsOrRefused) {
  const TempFolder folder;
  const AttemptOptions parent = MakeAttempt(folder);
  ASSERT_EQ(RunToEnd(parent).outcome, Outcome::kSucceeded);
  AttemptOptions more = parent;
  more.job_id = "more";
  more.begin_step = kSteps;
  more.training.max_steps = kSteps + 2;
  more.resume_from = parent.checkpoints_dir + "/step-000004.e1";
  more.checkpoints_dir += "-more";
  more.attempt_dir += "-more";
  AttemptOptions stranger = more, beside = more;
  stranger.attempt_dir += "-stranger";
  EXPECT_THAT(RunToEnd(stranger).message, HasSubstr("is of job " + parent.job_id + ", not more"));
  beside.parent_job = parent.job_id;
  beside.begin_step = kSteps - 1;
  beside.attempt_dir += "-beside";
  EXPECT_THAT(RunToEnd(beside).message, HasSubstr("not more"));
  more.parent_job = parent.job_id;
  const AttemptResult result = RunToEnd(more);
  ASSERT_EQ(result.outcome, Outcome::kSucceeded) << result.message;
  EXPECT_EQ(result.progress.resumed_from_step, kSteps);
  const std::string metrics = ReadText(more.attempt_dir + "/metrics.jsonl");
  EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), 2);
  EXPECT_THAT(metrics, HasSubstr("\"global_step\":5"));
}

// Its folder is a model's: an adapter is trained beside the weights of that very step.
TEST(AttemptEndTest, ACheckpointOfAWholeModelIsABaseOfAnAdapter) {
  const TempFolder folder;
  AttemptOptions beside = MakeAttempt(folder);
  const AttemptOptions whole = ToyAttempt(folder.path(), program::FullMode(), beside.training);
  const AttemptResult trained = RunToEnd(whole);
  ASSERT_EQ(trained.outcome, Outcome::kSucceeded) << trained.message;
  beside.model_dir = whole.checkpoints_dir + "/step-000004.e1";
  beside.training.learning_rate = 0.0;  // A new adapter changes nothing.
  beside.attempt_dir += "-beside";
  beside.checkpoints_dir += "-beside";
  const AttemptResult result = RunToEnd(beside);
  ASSERT_EQ(result.outcome, Outcome::kSucceeded) << result.message;
  EXPECT_NEAR(result.verified_loss, trained.verified_loss, 1e-5 * trained.verified_loss);
}

// An evaluation that the metrics tell of is not made again, so it must have left its answers. The
// first of them finds no room here.
TEST(AttemptEndTest, AnEvaluationIsToldOfOnlyWithItsAnswers) {
  const TempFolder folder;
  const AttemptOptions attempt = WithPrompts(folder);
  std::filesystem::create_directories(attempt.attempt_dir);
  std::filesystem::create_symlink("/dev/full", attempt.attempt_dir + "/samples.jsonl");
  EXPECT_EQ(RunToEnd(attempt).outcome, Outcome::kFailed);
  const std::string metrics = ReadText(attempt.attempt_dir + "/metrics.jsonl");
  EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), 2);  // Steps 1 and 2.
}

// Killed after the last answers were written and before the metrics told of them.
TEST(AttemptEndTest, AnswersOfAnUnfinishedEvaluationAreGivenOnce) {
  const TempFolder folder;
  const AttemptOptions first = WithPrompts(folder);
  ASSERT_EQ(RunToEnd(first).outcome, Outcome::kSucceeded);
  const std::string metrics = first.attempt_dir + "/metrics.jsonl", lines = ReadText(metrics);
  WriteText(metrics, lines.substr(0, lines.rfind("{\"eval_loss\":")));
  AttemptOptions second = first;
  second.epoch = 2;
  second.resume_from = first.checkpoints_dir + "/step-000004.e1";
  second.previous_metrics = metrics;
  second.attempt_dir += "-again";
  const AttemptResult resumed = RunToEnd(second);
  ASSERT_EQ(resumed.outcome, Outcome::kSucceeded) << resumed.message;
  const std::string samples = ReadText(second.attempt_dir + "/samples.jsonl");
  EXPECT_EQ(std::count(samples.begin(), samples.end(), '\n'), 2 * 2);  // Prompts, evaluations.
  EXPECT_EQ(samples, ReadText(first.attempt_dir + "/samples.jsonl"));
}

// The adapter is verified, and its sum with the base is no number in fp16: it is published without
// the merged model, and the result says why.
TEST(AttemptEndTest, AMergeThatOverflowsLeavesTheAdapter) {
  const TempFolder folder;
  AttemptOptions attempt = MakeAttempt(folder, {.dtype = "F16"});
  attempt.merge = true;
  attempt.training.max_steps = 1;
  attempt.training.learning_rate = 1e6;  // B A goes beyond 65504.
  const AttemptResult result = RunToEnd(attempt);
  ASSERT_EQ(result.outcome, Outcome::kSucceeded) << result.message;
  EXPECT_FALSE(result.merged_loss.has_value());
  EXPECT_THAT(result.merge_error, HasSubstr("NaN or infinite"));
  EXPECT_TRUE(std::filesystem::exists(result.output_dir + "/adapter_model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(result.output_dir + "/merged"));
}

// The test's device, one of whose ops finds no memory at some of its calls.
class ShortDevice final : public execute::Device {
 public:
  ShortDevice() : ops_(own().ops()) {
    real_ = ops_[kOp];
    ops_[kOp].backward = [](const execute::OpRun& run) {
      if (fails_at_.contains(calls_++)) throw execute::CapExceeded("the cap is hit");
      real_.backward(run);
    };
  }
  // From now on, at calls of these numbers, from 0.
  static void FailAt(std::set<int64_t> calls) {
    calls_ = 0;
    fails_at_ = std::move(calls);
  }

  const std::string& name() const override { return own().name(); }
  program::Machine machine() const override { return own().machine(); }
  execute::TrackingAllocator& allocator() override { return own().allocator(); }
  const execute::OpFunctionTable& ops() const override { return ops_; }
  bool host_reads_memory() const override { return true; }
  kernels::Stream stream(int number) override { return own().stream(number); }
  void Copy(void* to, const void* from, int64_t bytes, int stream) override {
    own().Copy(to, from, bytes, stream);
  }
  void CopyAsync(void* to, const void* from, int64_t bytes, int stream) override {
    own().CopyAsync(to, from, bytes, stream);
  }
  void Fill(void* to, int byte, int64_t bytes, int stream) override {
    own().Fill(to, byte, bytes, stream);
  }
  void Record(int event, int stream) override { own().Record(event, stream); }
  void Wait(int event, int stream) override { own().Wait(event, stream); }
  void Multiply(const execute::GemmCall& call, int stream) override {
    own().Multiply(call, stream);
  }
  bool rounds_products() const override { return own().rounds_products(); }
  absl::Status Synchronize() override { return own().Synchronize(); }

 private:
  static constexpr auto kOp = static_cast<size_t>(program::OpCode::kRope);
  static execute::Device& own() { return execute::TestDevice(); }

  execute::OpFunctionTable ops_;
  static execute::OpFunctions real_;
  static int64_t calls_;
  static std::set<int64_t> fails_at_;
};
execute::OpFunctions ShortDevice::real_;
int64_t ShortDevice::calls_ = 0;
std::set<int64_t> ShortDevice::fails_at_;

// Has so many smaller plans to offer.
class OfferingLink final : public link::WorkerLink {
 public:
  OfferingLink(const program::Program& program, int64_t smaller)
      : program_(program), smaller_(smaller) {}
  void ReportProgress(const TrainingProgress&, const link::MemoryReport&) override {}
  void ReportCheckpoint(const link::CheckpointReport&) override {}
  void ReportResult(const AttemptResult&) override {}
  link::Command command() const override { return link::Command::kNone; }
  std::optional<PlanOrder> TakePlanOrder() override { return std::nullopt; }
  void AnswerPlanOrder(const PlanAnswer& answer) override { answers.push_back(answer); }
  std::optional<PlanOrder> AskForSmallerPlan(const Shortage& shortage) override {
    shortages.push_back(shortage);
    if (static_cast<int64_t>(shortages.size()) > smaller_) return std::nullopt;
    const auto blocks = static_cast<int>(shortages.size());
    const program::Plan plan = program::RecomputePlan(program_, blocks);
    return PlanOrder{.number = blocks, .plan = program::NamedPlanOf(program_, plan)};
  }

  std::vector<Shortage> shortages;
  std::vector<PlanAnswer> answers;

 private:
  const program::Program& program_;
  const int64_t smaller_;
};

// The step is undone and made again, and what is trained is what it would have been.
TEST(AttemptEndTest, AStepThatDoesNotFitIsMadeAgainUnderASmallerPlan) {
  const TempFolder folder;
  const AttemptOptions undisturbed = MakeAttempt(folder);
  ASSERT_EQ(RunToEnd(undisturbed).outcome, Outcome::kSucceeded);
  AttemptOptions attempt = undisturbed;
  attempt.attempt_dir += "-short";
  attempt.checkpoints_dir += "-short";
  const auto program = program::BuildProgram(program::LlamaShape(ToyModel().sizes), attempt.mode);
  const std::atomic<bool> nobody_terminates_it = false;
  ShortDevice device;
  for (const int64_t smaller : {2, 1}) {
    ShortDevice::FailAt({10, 12});  // Amid a step, and again when it is made again.
    OfferingLink link(*program, smaller);
    device.allocator().SetCap(INT64_MAX);
    const AttemptResult result = RunAttempt(attempt, device, link, nobody_terminates_it);
    ASSERT_EQ(link.shortages.size(), 2u);
    EXPECT_EQ(link.shortages[0].message, "the cap is hit");
    EXPECT_GT(link.shortages[0].global_step, 0);
    EXPECT_EQ(link.shortages[1].global_step, link.shortages[0].global_step);
    if (smaller == 1) {
      EXPECT_EQ(result.failure_class, FailureClass::kOutOfMemory);
      continue;
    }
    ASSERT_EQ(result.outcome, Outcome::kSucceeded) << result.message;
    ASSERT_EQ(link.answers.size(), 2u);
    for (const PlanAnswer& answer : link.answers) EXPECT_EQ(answer.refusal, "");
    const std::string adapter = "/output/adapter_model.safetensors";
    EXPECT_EQ(ReadText(attempt.attempt_dir + adapter), ReadText(undisturbed.attempt_dir + adapter));
    EXPECT_EQ(ReadText(attempt.checkpoints_dir + "/step-000004.e1/optimizer.safetensors"),
              ReadText(undisturbed.checkpoints_dir + "/step-000004.e1/optimizer.safetensors"));
    attempt.attempt_dir += "-again";
    attempt.checkpoints_dir += "-again";
  }
}

// An op whose slice is smaller than what it takes: the message has the op, its block, the bytes
// declared and those asked for, and the daemon does not try again with a larger cap.
TEST(AttemptEndTest, AnOpThatTakesMoreThanItDeclaresIsNoLackOfMemory) {
  const program::TrainingMode mode = program::LoraMode({"q_proj"}, program::DType::kBF16);
  const auto program = program::BuildProgram(program::LlamaShape(ToyModel().sizes), mode);
  execute::ToyRun run(*program, {9, 5});
  program::Tape tape = run.Lower(program::RecomputePlan(run.program(), 0));
  const auto line =
      std::find_if(tape.instructions.begin(), tape.instructions.end(),
                   [](const auto& line) { return line.workspace != program::kNoSlot; });
  ASSERT_NE(line, tape.instructions.end());
  int64_t& declared = tape.slots[static_cast<size_t>(line->workspace)].bytes;
  ASSERT_GT(declared, 64);
  declared = 64;
  const absl::Status status = run.RunInArena(tape, execute::TestDevice()).status();
  EXPECT_THAT(std::string(status.message()),
              ContainsRegex("op [a-z_.]+ of block [0-9]+ declares 64 bytes of workspace and "
                            "asked for [0-9]+ more with 0 in use"));
  const Failure failure = FailureOf(status);
  EXPECT_STREQ(failure.reason, "INTERNAL");
  EXPECT_EQ(failure.failure_class, FailureClass::kUser);
}

}  // namespace
}  // namespace snug::train
