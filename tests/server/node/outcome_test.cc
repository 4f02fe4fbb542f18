#include "server/node/outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/place/policy.h"

namespace snug::server {
namespace {

using Exit = absl::StatusOr<std::optional<ExitRecord>>;
using Result = absl::StatusOr<std::optional<v1::WorkerResult>>;

Exit Exited(int code) { return ExitRecord{.pid = 1, .exit_code = code, .text = "{}"}; }

Result Says(v1::WorkerResult::Outcome outcome, v1::WorkerResult::FailureClass failure = {}) {
  v1::WorkerResult result;
  result.set_outcome(outcome);
  result.set_failure_class(failure);
  result.mutable_error()->set_reason("R");
  result.mutable_error()->set_message("m");
  return result;
}

TEST(OutcomeTest, FinishedWithItsResult) {
  EXPECT_EQ(Judge(Exited(0), Says(v1::WorkerResult::OUTCOME_SUCCEEDED)).ending, Ending::kSucceeded);
}

TEST(OutcomeTest, FinishedWithoutResultIsNoSuccess) {
  const Outcome outcome = Judge(Exited(0), std::nullopt);
  EXPECT_EQ(outcome.ending, Ending::kUserError);
  EXPECT_EQ(outcome.error.reason(), "NO_ARTIFACT");
}

TEST(OutcomeTest, FailureIsOfTheClassThatTheWorkerNames) {
  using R = v1::WorkerResult;
  EXPECT_EQ(Judge(Exited(4), Says(R::OUTCOME_FAILED, R::FAILURE_CLASS_USER)).ending,
            Ending::kUserError);
  EXPECT_EQ(Judge(Exited(4), Says(R::OUTCOME_FAILED, R::FAILURE_CLASS_OUT_OF_MEMORY)).ending,
            Ending::kOutOfMemory);
  EXPECT_EQ(Judge(Exited(4), Says(R::OUTCOME_FAILED, R::FAILURE_CLASS_INFRASTRUCTURE)).ending,
            Ending::kInfrastructure);
  EXPECT_EQ(Judge(Exited(4), std::nullopt).ending, Ending::kInfrastructure);
}

TEST(OutcomeTest, AFullDiskHasAnEndingOfItsOwn) {
  v1::WorkerResult result;
  result.set_outcome(v1::WorkerResult::OUTCOME_FAILED);
  result.set_failure_class(v1::WorkerResult::FAILURE_CLASS_INFRASTRUCTURE);
  result.mutable_error()->set_reason("DISK_FULL");
  EXPECT_EQ(Judge(Exited(4), result).ending, Ending::kDiskFull);
}

// The table of server/job/transient.h decides, not the class that the worker names.
TEST(OutcomeTest, WhatPassesByItselfHasAnEndingOfItsOwn) {
  v1::WorkerResult result;
  result.set_outcome(v1::WorkerResult::OUTCOME_FAILED);
  result.set_failure_class(v1::WorkerResult::FAILURE_CLASS_INFRASTRUCTURE);
  result.mutable_error()->set_reason("STORE_FULL");
  EXPECT_EQ(Judge(Exited(4), result).ending, Ending::kTransient);
}

// Its group's memory was the end of it, and of nobody else.
TEST(OutcomeTest, WhatTheKernelEndedForItsMemoryIsOutOfMemory) {
  ExitRecord record = {.pid = 1, .exit_code = -1, .signal = 9, .oom_kills = 2, .cgroup = "/c/a.1"};
  const Outcome outcome = Judge(Exit(record), std::nullopt);
  EXPECT_EQ(outcome.ending, Ending::kOutOfMemory);
  EXPECT_EQ(outcome.error.reason(), "OUT_OF_MEMORY");
  EXPECT_THAT(outcome.error.message(), testing::HasSubstr("control group /c/a.1 had all"));
  record.oom_kills = 0;
  EXPECT_EQ(Judge(Exit(record), std::nullopt).ending, Ending::kInfrastructure);
  record = {.pid = 1, .exit_code = 0, .oom_kills = 1};  // A child of it, and it went on.
  EXPECT_EQ(Judge(Exit(record), Says(v1::WorkerResult::OUTCOME_SUCCEEDED)).ending,
            Ending::kSucceeded);
}

// A result from before the kill stands there; the signal is what counts.
TEST(OutcomeTest, KilledWorkerIsInfrastructureWhateverItWrote) {
  Exit exit = ExitRecord{.pid = 1, .exit_code = -1, .signal = 9};
  const Outcome outcome = Judge(exit, Says(v1::WorkerResult::OUTCOME_SUCCEEDED));
  EXPECT_EQ(outcome.ending, Ending::kInfrastructure);
  EXPECT_THAT(outcome.error.message(), testing::HasSubstr("signal 9"));
}

TEST(OutcomeTest, NoExitRecordIsInfrastructure) {
  EXPECT_EQ(Judge(std::nullopt, std::nullopt).ending, Ending::kInfrastructure);
  EXPECT_EQ(Judge(absl::DataLossError("torn"), std::nullopt).exit, "torn");
}

TEST(OutcomeTest, StoppedOnCommand) {
  EXPECT_EQ(Judge(Exited(3), std::nullopt).ending, Ending::kStopped);
}

TEST(RetryTest, FirstAtOnceThenDoublingToTenMinutes) {
  Failures failures;
  std::vector<absl::Duration> delays;
  for (int i = 0; i < kMaxInfraRetries; ++i) {
    const RetryDecision decision = DecideRetry(Ending::kInfrastructure, failures, false, 0.0);
    EXPECT_TRUE(decision.retry);
    delays.push_back(decision.delay);
    failures = decision.failures;
  }
  EXPECT_THAT(delays,
              testing::ElementsAre(absl::ZeroDuration(), absl::Seconds(10), absl::Seconds(20),
                                   absl::Seconds(40), absl::Seconds(80)));
  EXPECT_FALSE(DecideRetry(Ending::kInfrastructure, failures, false, 0.0).retry);
}

TEST(RetryTest, ProgressStartsTheCountAgain) {
  const RetryDecision decision = DecideRetry(Ending::kInfrastructure, {.infra = 5}, true, 0.0);
  EXPECT_TRUE(decision.retry);
  EXPECT_EQ(decision.failures.infra, 1);
  EXPECT_EQ(decision.delay, absl::ZeroDuration());
}

TEST(RetryTest, JitterIsAFifth) {
  EXPECT_EQ(DecideRetry(Ending::kInfrastructure, {.infra = 1}, false, 1.0).delay,
            absl::Seconds(12));
  EXPECT_EQ(DecideRetry(Ending::kInfrastructure, {.infra = 1}, false, -1.0).delay,
            absl::Seconds(8));
}

// F-66: a longer one would be taken for one of before the clock was set back.
TEST(RetryTest, NoWaitIsLongerThanThePolicysLongest) {
  EXPECT_EQ(DecideRetry(Ending::kDiskFull, {}, false, 1.0).delay,
            absl::Microseconds(kLongestRetryWaitUs));
}

TEST(RetryTest, OutOfMemoryIsPlannedAgainTwice) {
  EXPECT_TRUE(DecideRetry(Ending::kOutOfMemory, {.oom = 0}, false, 0.0).retry);
  EXPECT_TRUE(DecideRetry(Ending::kOutOfMemory, {.oom = 1}, true, 0.0).retry);
  EXPECT_FALSE(DecideRetry(Ending::kOutOfMemory, {.oom = 2}, true, 0.0).retry);
}

// Waiting for room is no failure: it goes on for as long as it takes, and uses nothing up.
TEST(RetryTest, AFullDiskIsWaitedForAndCountsAsNothing) {
  const Failures before{.infra = kMaxInfraRetries, .oom = 1};
  const RetryDecision decision = DecideRetry(Ending::kDiskFull, before, false, 0.0);
  EXPECT_TRUE(decision.retry);
  EXPECT_EQ(decision.delay, absl::Minutes(10));
  EXPECT_EQ(decision.failures.infra, kMaxInfraRetries);
  EXPECT_EQ(decision.failures.oom, 1);
  EXPECT_EQ(decision.reason, "waits for room on the disk");
  EXPECT_EQ(DecideRetry(Ending::kDiskFull, before, true, 0.0).failures.infra, 0);
}

TEST(RetryTest, WhatPassesIsTriedAgainInAMinuteAndCountsAsNothing) {
  const Failures before{.infra = kMaxInfraRetries};
  const RetryDecision decision = DecideRetry(Ending::kTransient, before, false, 0.0);
  EXPECT_TRUE(decision.retry);
  EXPECT_EQ(decision.delay, absl::Minutes(1));
  EXPECT_EQ(decision.failures.infra, kMaxInfraRetries);
}

TEST(RetryTest, TheJobsOwnErrorIsNotTriedAgain) {
  EXPECT_FALSE(DecideRetry(Ending::kUserError, {}, true, 0.0).retry);
}

}  // namespace
}  // namespace snug::server
