#include "server/job/states.h"

#include <gtest/gtest.h>

#include "server/job/records.h"

namespace snug::server {
namespace {

using v1::Job;

// Every pair of states is tried: what the table does not name is refused.
TEST(StatesTest, OnlyTheMovesOfTheTableAreAllowed) {
  int allowed = 0;
  for (int from = Job::STATE_PREPARING; from <= Job::STATE_CANCELLED; ++from)
    for (int to = Job::STATE_PREPARING; to <= Job::STATE_CANCELLED; ++to)
      allowed += CheckMove(static_cast<JobState>(from), static_cast<JobState>(to)).ok();
  EXPECT_EQ(allowed, 26);
  EXPECT_EQ(JobMoves().size(), 26u);
}

TEST(StatesTest, TerminalStatesHaveNoWayOut) {
  for (const JobMove& move : JobMoves()) EXPECT_FALSE(IsTerminal(move.from)) << NameOf(move.from);
}

TEST(StatesTest, EveryLiveStateCanBeCancelled) {
  for (int state = Job::STATE_PREPARING; state <= Job::STATE_PAUSED; ++state) {
    const auto from = static_cast<JobState>(state);
    const JobState to = HasAttempt(from) ? Job::STATE_CANCELLING : Job::STATE_CANCELLED;
    EXPECT_TRUE(CheckMove(from, to).ok()) << NameOf(from);
  }
}

TEST(StatesTest, RefusalNamesBothStates) {
  const absl::Status refused = CheckMove(Job::STATE_SUCCEEDED, Job::STATE_RUNNING);
  EXPECT_EQ(refused.message(), "no move of a job from SUCCEEDED to RUNNING");
}

// The caller believes the job to be queued; it runs already.
TEST(StatesTest, GateRefusesAMoveFromAnotherState) {
  JobRecord record;
  record.job.set_id("a");
  record.job.set_state(Job::STATE_RUNNING);
  EXPECT_FALSE(record.TransitionTo(Job::STATE_QUEUED, Job::STATE_STARTING, "", 1).ok());
  EXPECT_EQ(record.state(), Job::STATE_RUNNING);
}

TEST(StatesTest, GateSetsReasonAndTimes) {
  JobRecord record;
  record.job.set_state(Job::STATE_STARTING);
  ASSERT_TRUE(
      record.TransitionTo(Job::STATE_STARTING, Job::STATE_RUNNING, "is training", 2'000'000).ok());
  EXPECT_EQ(record.job.start_time().seconds(), 2);
  ASSERT_TRUE(
      record.TransitionTo(Job::STATE_RUNNING, Job::STATE_SUCCEEDED, "finished", 3'000'000).ok());
  EXPECT_EQ(record.job.end_time().seconds(), 3);
  EXPECT_EQ(record.job.reason(), "finished");
}

TEST(StatesTest, AttemptsGoForwardOnly) {
  EXPECT_TRUE(CheckMove(AttemptState::kLive, AttemptState::kUnreachable).ok());
  EXPECT_TRUE(CheckMove(AttemptState::kUnreachable, AttemptState::kLive).ok());
  EXPECT_FALSE(CheckMove(AttemptState::kClosed, AttemptState::kLive).ok());
  EXPECT_FALSE(CheckMove(AttemptState::kLive, AttemptState::kSpawned).ok());
}

}  // namespace
}  // namespace snug::server
