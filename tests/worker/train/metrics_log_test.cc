#include "worker/train/metrics_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "tests/worker/checkpoint/testbed.h"

namespace snug::train {
namespace {

using checkpoint::ReadText;
using checkpoint::TempFolder;
using checkpoint::WriteText;
using testing::HasSubstr;

StepMetrics MetricsOf(int64_t step) {
  return {.loss = 2.5 / static_cast<double>(step),
          .grad_norm = 0.1,
          .learning_rate = 2e-4,
          .epoch = static_cast<double>(step) / 8,
          .global_step = step,
          .num_tokens = 512 * step,
          .samples = 8,
          .mean_token_accuracy = 0.25,
          .entropy = 3.5,
          .tokens_per_second = 1024.5,
          .step_seconds = 0.5};
}

void AppendSteps(MetricsLog& log, int64_t from, int64_t to) {
  for (int64_t step = from; step <= to; ++step) SNUG_ASSERT_OK(log.Append(MetricsOf(step)));
}

// Without the time of day, which is another in each run.
std::string Untimed(const std::string& path) {
  return std::regex_replace(ReadText(path), std::regex(R"(,"time":[0-9.]+\})"), "}");
}

// "step 1", "eval 1", ... of each line, all of which must be whole.
std::vector<std::string> Summary(const std::string& path) {
  std::vector<std::string> lines;
  std::istringstream text(ReadText(path));
  for (std::string line; std::getline(text, line);) {
    EXPECT_FALSE(text.eof()) << "the last line has no end";
    const auto json = nlohmann::json::parse(line, nullptr, false);
    EXPECT_TRUE(json.is_object()) << line;
    if (!json.is_object()) continue;
    lines.push_back((json.contains("eval_loss") ? "eval " : "step ") + json["global_step"].dump());
  }
  return lines;
}

// Three steps in the previous log, an evaluation behind the second.
void WritePrevious(const std::string& path) {
  auto log = MetricsLog::Create(path);
  SNUG_ASSERT_OK(log);
  AppendSteps(*log, 1, 2);
  SNUG_ASSERT_OK(log->Append(EvalMetrics{.eval_loss = 1.5,
                                         .figures = {{"f1", 0.5}, {"entropy", 2.0}},
                                         .runtime = 3.0,
                                         .global_step = 2,
                                         .epoch = 0.25}));
  AppendSteps(*log, 3, 3);
}

std::string ResumeError(const TempFolder& folder, const std::string& previous, int64_t step) {
  WriteText(folder / "previous.jsonl", previous);
  const auto log = MetricsLog::Resume(folder / "metrics.jsonl",
                                      {.previous = folder / "previous.jsonl", .step = step});
  EXPECT_EQ(log.status().code(), absl::StatusCode::kDataLoss) << log.status();
  EXPECT_FALSE(std::filesystem::exists(folder / "metrics.jsonl"));
  return std::string(log.status().message());
}

TEST(MetricsLogTest, WritesTheLinesThatReadersExpect) {
  const TempFolder folder;
  auto log = MetricsLog::Create(folder / "metrics.jsonl");
  SNUG_ASSERT_OK(log);
  AppendSteps(*log, 1, 1);
  SNUG_ASSERT_OK(
      log->Append(EvalMetrics{.eval_loss = 1.5,
                              .figures = {{"mean_token_accuracy", 0.5}, {"entropy", 3.25}},
                              .runtime = 2.5,
                              .global_step = 1,
                              .epoch = 0.125}));
  std::string text = ReadText(folder / "metrics.jsonl");
  const auto first = nlohmann::json::parse(text.substr(0, text.find('\n')));
  EXPECT_NEAR(first["time"].get<double>(), static_cast<double>(time(nullptr)), 60.0);
  text = std::regex_replace(text, std::regex(R"(,"time":[0-9.]+\})"), R"(,"time":T})");
  EXPECT_EQ(text,
            R"({"loss":2.5,"grad_norm":0.1,"learning_rate":0.0002,"epoch":0.125,"global_step":1,)"
            R"("num_tokens":512,"samples":8,"mean_token_accuracy":0.25,"entropy":3.5,)"
            R"("tokens_per_second":1024.5,"step_seconds":0.5,"time":T})"
            "\n"
            R"({"eval_loss":1.5,"eval_entropy":3.25,"eval_mean_token_accuracy":0.5,)"
            R"("eval_runtime":2.5,"global_step":1,"epoch":0.125,"time":T})"
            "\n");
  EXPECT_FALSE(MetricsLog::Create(folder / "metrics.jsonl").ok()) << "would begin it anew";
}

TEST(MetricsLogTest, ARegressionRanksNothingFirst) {
  const TempFolder folder;
  auto log = MetricsLog::Create(folder / "metrics.jsonl");
  SNUG_ASSERT_OK(log);
  SNUG_ASSERT_OK(log->Append(EvalMetrics{.eval_loss = 1.5, .figures = {{"mse", 1.5}}}));
  SNUG_ASSERT_OK(log->Append(StepMetrics{.global_step = 1, .accuracy_name = nullptr}));
  const std::string text = ReadText(folder / "metrics.jsonl");
  for (const char* name : {"accuracy", "entropy"}) EXPECT_EQ(text.find(name), std::string::npos);
}

TEST(MetricsLogTest, TakesEachStepOnceAndInOrder) {
  const TempFolder folder;
  auto log = MetricsLog::Create(folder / "metrics.jsonl");
  SNUG_ASSERT_OK(log);
  SNUG_ASSERT_OK(log->Append(EvalMetrics{.eval_loss = 3.0, .global_step = 0}));
  AppendSteps(*log, 1, 2);
  EXPECT_THAT(std::string(log->Append(MetricsOf(2)).message()), HasSubstr("step 2 behind step 2"));
  EXPECT_THAT(std::string(log->Append(MetricsOf(4)).message()), HasSubstr("step 4 behind step 2"));
  EXPECT_FALSE(log->Append(EvalMetrics{.eval_loss = 1.0, .global_step = 1}).ok());
  SNUG_ASSERT_OK(log->Append(EvalMetrics{.eval_loss = 1.0, .global_step = 2}));
  EXPECT_EQ(log->steps().last_evaluated, 2);
  EXPECT_FALSE(log->Append(EvalMetrics{.eval_loss = 1.0, .global_step = 2}).ok());
  AppendSteps(*log, 3, 3);
  EXPECT_EQ(log->steps().last, 3);
  EXPECT_THAT(Summary(folder / "metrics.jsonl"),
              testing::ElementsAre("eval 0", "step 1", "step 2", "eval 2", "step 3"));
}

TEST(MetricsLogTest, RefusesNumbersThatJsonCannotHold) {
  const TempFolder folder;
  auto log = MetricsLog::Create(folder / "metrics.jsonl");
  SNUG_ASSERT_OK(log);
  StepMetrics metrics = MetricsOf(1);
  metrics.grad_norm = std::numeric_limits<double>::infinity();
  EXPECT_THAT(std::string(log->Append(metrics).message()),
              HasSubstr("metrics of step 1: grad_norm is inf"));
  EXPECT_EQ(ReadText(folder / "metrics.jsonl"), "");
  AppendSteps(*log, 1, 1);
}

// The checkpoint is of step 2, the worker was killed in or after step 3.
TEST(MetricsLogTest, ResumesWithTheLinesUpToTheCheckpoint) {
  const TempFolder folder;
  WritePrevious(folder / "previous.jsonl");
  auto log = MetricsLog::Resume(folder / "metrics.jsonl",
                                {.previous = folder / "previous.jsonl", .step = 2});
  SNUG_ASSERT_OK(log);
  EXPECT_EQ(log->steps().last, 2);
  EXPECT_EQ(log->steps().last_evaluated, 2);
  EXPECT_EQ(log->steps().eval_loss, 1.5);
  EXPECT_EQ(log->steps().eval_figures, (Figures{{"entropy", 2.0}, {"f1", 0.5}}));
  AppendSteps(*log, 3, 4);
  SNUG_ASSERT_OK(log->Sync());
  EXPECT_THAT(Summary(folder / "metrics.jsonl"),
              testing::ElementsAre("step 1", "step 2", "eval 2", "step 3", "step 4"));
  EXPECT_EQ(Untimed(folder / "metrics.jsonl").find(Untimed(folder / "previous.jsonl")), 0u)
      << "a line was rewritten";
}

// Of a job that extends another there is no line up to where it begins.
TEST(MetricsLogTest, BeginsBehindAStepAndResumesThere) {
  const TempFolder folder;
  auto first = MetricsLog::Create(folder / "previous.jsonl", 60);
  SNUG_ASSERT_OK(first);
  EXPECT_THAT(std::string(first->Append(MetricsOf(60)).message()),
              HasSubstr("step 60 behind step 60"));
  AppendSteps(*first, 61, 63);
  auto log = MetricsLog::Resume(folder / "metrics.jsonl",
                                {.previous = folder / "previous.jsonl", .step = 62, .begin = 60});
  SNUG_ASSERT_OK(log);
  AppendSteps(*log, 63, 63);
  EXPECT_THAT(Summary(folder / "metrics.jsonl"),
              testing::ElementsAre("step 61", "step 62", "step 63"));
}

// The last line without its end, at any byte of it.
TEST(MetricsLogTest, DropsATornLastLine) {
  const TempFolder folder;
  WritePrevious(folder / "whole.jsonl");
  const std::string whole = ReadText(folder / "whole.jsonl");
  const size_t last_line = whole.rfind('\n', whole.size() - 2) + 1;
  for (size_t bytes = last_line; bytes < whole.size(); ++bytes) {
    WriteText(folder / "previous.jsonl", whole.substr(0, bytes));
    {
      auto log = MetricsLog::Resume(folder / "metrics.jsonl",
                                    {.previous = folder / "previous.jsonl", .step = 2});
      SNUG_ASSERT_OK(log);
      AppendSteps(*log, 3, 3);
    }
    EXPECT_EQ(Untimed(folder / "metrics.jsonl"), Untimed(folder / "whole.jsonl"));
    std::filesystem::remove(folder / "metrics.jsonl");
  }
}

// What is broken before the checkpoint cannot be told from what was never written: an error with
// its place, and no file that would look like a log.
TEST(MetricsLogTest, NamesTheLineThatIsBroken) {
  const TempFolder folder;
  const std::string one = "{\"loss\":1.0,\"global_step\":1}\n";
  const std::string two = "{\"loss\":1.0,\"global_step\":2}\n";
  const std::string three = "{\"loss\":1.0,\"global_step\":3}\n";
  EXPECT_THAT(ResumeError(folder, one + "{\"loss\"\n" + three, 3),
              HasSubstr("previous.jsonl:2: not a line of metrics"));
  EXPECT_THAT(ResumeError(folder, one + "\n", 2), HasSubstr(":2: not a line of metrics"));
  EXPECT_THAT(ResumeError(folder, "[1]\n", 1), HasSubstr(":1: not a line of metrics"));
  const std::string deep = std::string(100'000, '[') + "\n";
  EXPECT_THAT(ResumeError(folder, one + deep + two, 2), HasSubstr(":2: not a line of metrics"));
  EXPECT_THAT(ResumeError(folder, one + three, 3), HasSubstr(":2: step 3 behind step 1"));
  EXPECT_THAT(ResumeError(folder, one + one + two, 2), HasSubstr(":2: step 1 behind step 1"));
  EXPECT_THAT(ResumeError(folder, one + two, 3),
              HasSubstr("ends at step 2; the checkpoint is of step 3"));
  EXPECT_THAT(ResumeError(folder, one + two.substr(0, two.size() - 1), 2),
              HasSubstr("ends at step 1; the checkpoint is of step 2"));
  const auto absent =
      MetricsLog::Resume(folder / "metrics.jsonl", {.previous = folder / "absent", .step = 1});
  EXPECT_EQ(absent.status().code(), absl::StatusCode::kNotFound);
}

// Killed between copying and renaming: the next try is not in the way of what that left.
TEST(MetricsLogTest, ResumesOverALeftOver) {
  const TempFolder folder;
  WritePrevious(folder / "previous.jsonl");
  WriteText(folder / "metrics.jsonl.tmp", "half");
  SNUG_ASSERT_OK(MetricsLog::Resume(folder / "metrics.jsonl",
                                    {.previous = folder / "previous.jsonl", .step = 3}));
  EXPECT_EQ(ReadText(folder / "metrics.jsonl"), ReadText(folder / "previous.jsonl"));
  EXPECT_FALSE(std::filesystem::exists(folder / "metrics.jsonl.tmp"));
}

// Writes steps to `path` until it is killed after `delay_us`.
void WriteUntilKilled(const std::string& path, useconds_t delay_us) {
  const pid_t child = fork();
  if (child == 0) {
    auto log = MetricsLog::Create(path);
    for (int64_t step = 1; log.ok(); ++step) {
      if (!log->Append(MetricsOf(step)).ok()) break;
    }
    _exit(1);
  }
  usleep(delay_us);
  ASSERT_EQ(kill(child, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
}

// Killed at any moment: at most the last line is torn, and the next attempt goes on behind the last
// whole one, the worst that a checkpoint can ask for.
TEST(MetricsLogTest, GoesOnAfterAKillAtAnyMoment) {
  for (useconds_t delay_us = 1'000; delay_us <= 30'000; delay_us += 1'000) {
    const TempFolder folder;
    const std::string previous = folder / "previous.jsonl";
    WriteUntilKilled(previous, delay_us);
    if (!std::filesystem::exists(previous)) continue;  // Killed before it began.
    const std::string text = ReadText(previous);
    const int64_t whole = std::count(text.begin(), text.end(), '\n');
    auto log = MetricsLog::Resume(folder / "metrics.jsonl", {.previous = previous, .step = whole});
    SNUG_ASSERT_OK(log);
    AppendSteps(*log, whole + 1, whole + 1);
    const std::vector<std::string> lines = Summary(folder / "metrics.jsonl");
    ASSERT_EQ(static_cast<int64_t>(lines.size()), whole + 1);
    for (size_t i = 0; i < lines.size(); ++i) ASSERT_EQ(lines[i], "step " + std::to_string(i + 1));
  }
}

// Half a line found room: it is taken back, the error says so, and with room again the log goes on.
TEST(MetricsLogTest, TakesBackHalfALineWhenTheDiskIsFull) {
  const TempFolder folder;
  const std::string path = folder / "metrics.jsonl";
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    auto log = MetricsLog::Create(path);
    const bool first = log.ok() && log->Append(MetricsOf(1)).ok();
    rlimit limit = {.rlim_cur = std::filesystem::file_size(path) + 50, .rlim_max = RLIM_INFINITY};
    bool refused = first && setrlimit(RLIMIT_FSIZE, &limit) == 0 && !log->Append(MetricsOf(2)).ok();
    limit.rlim_cur = RLIM_INFINITY;
    const bool again = setrlimit(RLIMIT_FSIZE, &limit) == 0 && log->Append(MetricsOf(2)).ok();
    _exit(refused && again ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(Summary(path), testing::ElementsAre("step 1", "step 2"));
}

}  // namespace
}  // namespace snug::train
