// What each end of an attempt means for a job in each state that has one.
#include "server/scheduler/conclusion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace snug::server {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr int64_t kNow = 1'000'000'000;

class ConclusionTest : public testing::Test {
 protected:
  ConclusionTest() {
    job_.job.set_id("a");
    job_.job.set_state(v1::Job::STATE_RUNNING);
    job_.job.set_device("cpu:0");
    attempt_ = {.job = "a", .epoch = 1, .state = AttemptState::kLive};
    Ends(Ending::kInfrastructure);
  }

  void Ends(Ending ending, const std::string& message = "killed") {
    closed_.outcome = {.ending = ending, .exit = "{}"};
    closed_.outcome.error.set_reason("R");
    closed_.outcome.error.set_message(message);
  }
  void LeavesAnOutput() { closed_.output = ArtifactRecord{.job = "a", .epoch = 1, .dir = "/out"}; }
  void LeavesACheckpoint(int64_t step) {
    const CheckpointRecord checkpoint = {.job = "a", .step = step, .epoch = 1};
    closed_.checkpoints = CheckpointScan{.records = {checkpoint}, .newest = checkpoint};
  }
  // The job by then, and that the attempt is closed.
  const v1::Job& After() {
    const absl::Status status = Conclude(closed_, {.now_us = kNow}, job_, attempt_, change_);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(attempt_.state, AttemptState::kClosed);
    return job_.job;
  }

  JobRecord job_;
  AttemptRecord attempt_;
  ClosedAttempt closed_;
  Change change_;
};

TEST_F(ConclusionTest, ASuccessWithAGoodOutputSucceeds) {
  Ends(Ending::kSucceeded);
  LeavesAnOutput();
  closed_.outcome.result.mutable_progress()->set_global_step(7);
  closed_.outcome.result.set_measured_peak_bytes(99);
  const v1::Job& job = After();
  EXPECT_EQ(job.state(), v1::Job::STATE_SUCCEEDED);
  EXPECT_EQ(job.progress().global_step(), 7);
  EXPECT_EQ(job.memory().measured_peak_bytes(), 99);
  EXPECT_EQ(job_.output_dir, "/out");
  EXPECT_TRUE(change_.artifact.has_value());
  EXPECT_EQ(change_.events.size(), 1u);
}

// Its Hello was not heard: it has run all the same, and the events say so.
TEST_F(ConclusionTest, ASuccessWhileTheDaemonWasAwayRanFirst) {
  Ends(Ending::kSucceeded);
  LeavesAnOutput();
  job_.job.set_state(v1::Job::STATE_STARTING);
  EXPECT_EQ(After().state(), v1::Job::STATE_SUCCEEDED);
  ASSERT_EQ(change_.events.size(), 2u);
  EXPECT_EQ(change_.events[0].to, v1::Job::STATE_RUNNING);
}

TEST_F(ConclusionTest, ASuccessWithADamagedOutputFails) {
  Ends(Ending::kSucceeded);
  closed_.output = absl::DataLossError("a hash is wrong");
  const v1::Job& job = After();
  EXPECT_EQ(job.state(), v1::Job::STATE_FAILED);
  EXPECT_EQ(job.error().reason(), "BAD_ARTIFACT");
  EXPECT_EQ(job.error().message(), "a hash is wrong");
  EXPECT_FALSE(change_.artifact.has_value());
}

TEST_F(ConclusionTest, AnErrorOfTheJobsOwnFailsWithIt) {
  Ends(Ending::kUserError, "the loss is not finite");
  const v1::Job& job = After();
  EXPECT_EQ(job.state(), v1::Job::STATE_FAILED);
  EXPECT_EQ(job.error().reason(), "R");
  EXPECT_EQ(job.reason(), "the loss is not finite");
}

// Progress is what starts the count again, not time.
TEST_F(ConclusionTest, ALostAttemptIsTriedAgainUntilNoRetriesAreLeft) {
  for (int i = 0; i < kMaxInfraRetries; ++i) {
    attempt_.state = AttemptState::kLive;
    job_.job.set_state(v1::Job::STATE_RUNNING);
    EXPECT_EQ(After().state(), v1::Job::STATE_QUEUED);
    EXPECT_EQ(job_.infra_failures, i + 1);
    EXPECT_EQ(job_.not_before_us > kNow, i > 0);  // The first time at once.
  }
  attempt_.state = AttemptState::kLive;
  job_.job.set_state(v1::Job::STATE_RUNNING);
  const JobRecord before = job_;
  EXPECT_EQ(After().state(), v1::Job::STATE_FAILED);
  EXPECT_THAT(job_.job.error().message(), HasSubstr("no retries are left"));
  job_ = before;
  attempt_.state = AttemptState::kLive;
  LeavesACheckpoint(5);
  EXPECT_EQ(After().state(), v1::Job::STATE_QUEUED);
  EXPECT_EQ(job_.infra_failures, 1);
  EXPECT_EQ(change_.checkpoints.size(), 1u);
}

TEST_F(ConclusionTest, ACheckpointThatItBeganFromIsNoProgress) {
  job_.infra_failures = 2;
  attempt_.resume_step = 5;
  LeavesACheckpoint(5);
  After();
  EXPECT_EQ(job_.infra_failures, 3);
}

TEST_F(ConclusionTest, OutOfMemoryCountsAsThat) {
  Ends(Ending::kOutOfMemory);
  EXPECT_EQ(After().state(), v1::Job::STATE_QUEUED);
  EXPECT_EQ(job_.oom_failures, 1);
  EXPECT_EQ(job_.infra_failures, 0);
}

// The plan was right: others have what was promised.
TEST_F(ConclusionTest, OutOfMemoryThatOthersHaveTakenIsNotThePlans) {
  Ends(Ending::kOutOfMemory);
  closed_.taken_bytes = int64_t{3} << 30;
  EXPECT_EQ(After().state(), v1::Job::STATE_QUEUED);
  EXPECT_EQ(job_.oom_failures, 0);
  EXPECT_EQ(job_.infra_failures, 1);
  EXPECT_THAT(job_.job.reason(), StartsWith("others have taken 3 GiB of what it was promised on "
                                            "cpu:0"));
}

TEST_F(ConclusionTest, WhatPassesByItselfCountsAsNoFailure) {
  attempt_.exit = "no memory for a process";
  closed_.outcome.exit = "no exit record";
  closed_.not_started = absl::UnavailableError("no memory for a process");
  EXPECT_EQ(After().state(), v1::Job::STATE_QUEUED);
  EXPECT_EQ(job_.infra_failures, 0);
  EXPECT_THAT(job_.job.reason(), HasSubstr("its worker was not started: no memory for a process"));
}

// F-25: it does not begin anew by itself, and is not lost either.
TEST_F(ConclusionTest, DamagedCheckpointsPauseTheJob) {
  for (const JobState state :
       {v1::Job::STATE_STARTING, v1::Job::STATE_RUNNING, v1::Job::STATE_PAUSING}) {
    job_.job.set_state(state);
    attempt_.state = AttemptState::kLive;
    closed_.checkpoints = absl::DataLossError("all are damaged");
    EXPECT_EQ(After().state(), v1::Job::STATE_PAUSED);
    EXPECT_THAT(job_.job.reason(), HasSubstr("all are damaged"));
    EXPECT_FALSE(job_.job.has_error());
  }
}

TEST_F(ConclusionTest, APausedOneGoesOnFromItsCheckpoint) {
  job_.job.set_state(v1::Job::STATE_PAUSING);
  Ends(Ending::kStopped);
  LeavesACheckpoint(4);
  EXPECT_EQ(After().state(), v1::Job::STATE_PAUSED);
  EXPECT_EQ(job_.job.reason(), "paused; goes on from its checkpoint of step 4");
  job_.job.set_state(v1::Job::STATE_PAUSING);
  attempt_.state = AttemptState::kLive;
  Ends(Ending::kInfrastructure);
  closed_.checkpoints = CheckpointScan{};
  EXPECT_EQ(After().state(), v1::Job::STATE_PAUSED);
  EXPECT_EQ(job_.job.reason(), "paused; its worker was lost; goes on from its beginning");
}

// Nobody asks it of one that has ended instead.
TEST_F(ConclusionTest, WhyTheDaemonHasPausedItIsSaid) {
  job_.job.set_state(v1::Job::STATE_PAUSING);
  job_.job.set_pause_cause("it is far off");
  Ends(Ending::kStopped);
  LeavesACheckpoint(4);
  EXPECT_EQ(After().reason(), "paused: it is far off; goes on from its checkpoint of step 4");
  EXPECT_EQ(job_.job.pause_cause(), "it is far off");
  job_.job.set_state(v1::Job::STATE_PAUSING);
  attempt_.state = AttemptState::kLive;
  Ends(Ending::kSucceeded);
  LeavesAnOutput();
  EXPECT_EQ(After().state(), v1::Job::STATE_SUCCEEDED);
  EXPECT_EQ(job_.job.pause_cause(), "");
}

TEST_F(ConclusionTest, OneThatMovesWaitsAgainAtOnce) {
  closed_.moves = "moved off cpu:0, which is drained";
  Ends(Ending::kStopped);
  LeavesACheckpoint(4);
  EXPECT_EQ(After().state(), v1::Job::STATE_QUEUED);
  EXPECT_EQ(job_.job.reason(),
            "moved off cpu:0, which is drained; goes on from its checkpoint of step 4");
  EXPECT_EQ(job_.not_before_us, 0);
  EXPECT_EQ(NameForMetrics(job_.state(), closed_), "moved");
}

TEST_F(ConclusionTest, ACancelledOneIsCancelledHoweverItEnded) {
  for (const Ending ending : {Ending::kSucceeded, Ending::kStopped, Ending::kInfrastructure,
                              Ending::kUserError, Ending::kOutOfMemory}) {
    job_.job.set_state(v1::Job::STATE_CANCELLING);
    attempt_.state = AttemptState::kLive;
    Ends(ending);
    EXPECT_EQ(After().state(), v1::Job::STATE_CANCELLED);
    EXPECT_FALSE(change_.artifact.has_value());
  }
}

TEST_F(ConclusionTest, WhatIsKeptOfACancelledOneIsItsOutput) {
  job_.job.set_state(v1::Job::STATE_CANCELLING);
  job_.job.set_keep(true);
  Ends(Ending::kSucceeded);
  LeavesAnOutput();
  EXPECT_EQ(After().state(), v1::Job::STATE_CANCELLED);
  EXPECT_TRUE(change_.artifact.has_value());
  EXPECT_EQ(job_.output_dir, "/out");
  job_.job.set_state(v1::Job::STATE_CANCELLING);
  attempt_.state = AttemptState::kLive;
  change_ = {};
  Ends(Ending::kInfrastructure);
  EXPECT_EQ(After().reason(), "cancelled without an output: its worker was lost: killed");
  EXPECT_FALSE(change_.artifact.has_value());
}

// Its worker was started for the export alone, and nobody heard of it.
TEST_F(ConclusionTest, OneThatIsToBeKeptIsCancelledHoweverItsWorkerEnds) {
  for (const Ending ending : {Ending::kSucceeded, Ending::kUserError, Ending::kInfrastructure}) {
    job_.job.set_state(v1::Job::STATE_STARTING);
    job_.job.set_keep(true);
    job_.infra_failures = kMaxInfraRetries;
    attempt_.state = AttemptState::kLive;
    change_ = {};
    Ends(ending);
    LeavesAnOutput();
    EXPECT_EQ(After().state(), v1::Job::STATE_CANCELLED);
    EXPECT_EQ(change_.artifact.has_value(), ending == Ending::kSucceeded);
  }
  job_.job.set_state(v1::Job::STATE_STARTING);
  job_.infra_failures = 0;
  attempt_.state = AttemptState::kLive;
  Ends(Ending::kInfrastructure);
  EXPECT_EQ(After().state(), v1::Job::STATE_QUEUED);
  EXPECT_TRUE(job_.job.keep());
}

// The daemon was killed between storing the attempt and starting it. It costs the job no retry.
TEST_F(ConclusionTest, OneThatWasNeverStartedWaitsAgain) {
  job_.job.set_state(v1::Job::STATE_STARTING);
  attempt_.state = AttemptState::kIntent;
  closed_.outcome.exit = "no exit record";
  EXPECT_EQ(After().state(), v1::Job::STATE_QUEUED);
  EXPECT_EQ(job_.job.reason(), "its attempt was never started");
  EXPECT_EQ(job_.infra_failures, 0);
  EXPECT_EQ(attempt_.exit, "no exit record");
}

// It is over with the attempt, however that ended; only where the worker did as it was told was
// that nobody's failure.
TEST_F(ConclusionTest, WhoHadToLeaveWaitsAgainAndHasLostNoRetry) {
  for (const Ending ending : {Ending::kStopped, Ending::kInfrastructure}) {
    job_.job.set_state(v1::Job::STATE_RUNNING);
    job_.job.mutable_displacement()->set_count(1);
    job_.job.mutable_displacement()->set_pending(true);
    job_.job.mutable_step_time()->set_slowdown(2.0);
    attempt_.state = AttemptState::kLive;
    closed_.moves = "put back from cpu:0: slows b";
    Ends(ending);
    EXPECT_EQ(After().state(), v1::Job::STATE_QUEUED);
    EXPECT_FALSE(job_.job.displacement().pending());
    EXPECT_EQ(job_.job.displacement().count(), 1);
    EXPECT_EQ(job_.job.step_time().slowdown(), 0.0);  // Nobody is beside it.
    const bool stopped = ending == Ending::kStopped;
    EXPECT_EQ(job_.infra_failures, stopped ? 0 : 1);
    EXPECT_EQ(job_.job.reason() == "put back from cpu:0: slows b; goes on from its beginning",
              stopped);
  }
}

// It was to leave its device when its user asked for what it has: its next worker exports that, or
// this one has, if it never heard of leaving.
TEST_F(ConclusionTest, WhoHadToLeaveIsKeptAllTheSame) {
  for (const Ending ending : {Ending::kStopped, Ending::kSucceeded}) {
    job_.job.set_state(v1::Job::STATE_RUNNING);
    job_.job.set_keep(true);
    job_.job.mutable_displacement()->set_pending(true);
    attempt_.state = AttemptState::kLive;
    closed_.moves = "put back from cpu:0: slows b";
    change_ = {};
    Ends(ending);
    LeavesAnOutput();
    const bool stopped = ending == Ending::kStopped;
    EXPECT_EQ(After().state(), stopped ? v1::Job::STATE_QUEUED : v1::Job::STATE_CANCELLED);
    EXPECT_EQ(change_.artifact.has_value(), !stopped);
    EXPECT_TRUE(job_.job.keep());
  }
}

// The next attempt may be given another plan.
TEST_F(ConclusionTest, AnOrderedPlanChangeEndsWithItsAttempt) {
  job_.job.mutable_plan_changes()->mutable_pending()->set_bytes(5);
  job_.job.mutable_plan_changes()->set_limit_bytes(5);
  job_.job.mutable_plan_changes()->set_most_bytes(5);
  EXPECT_FALSE(After().plan_changes().has_pending());
  EXPECT_EQ(job_.job.plan_changes().limit_bytes(), 0);
  EXPECT_EQ(job_.job.plan_changes().most_bytes(), 0);
}

}  // namespace
}  // namespace snug::server
