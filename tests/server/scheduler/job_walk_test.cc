// What holds of a job's rows, transactions and actions after any event in any state.
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <utility>

#include "server/job/errors.h"
#include "server/scheduler/job_step.h"
#include "tests/server/scheduler/job_rows.h"

namespace snug::server {
namespace {

using v1::Job;

// A walk of random events, each of those that can happen in the state that the last one led to.
// Rows, transactions and actions are held against each other after each.
class WalkTest : public testing::TestWithParam<int> {
 protected:
  bool Chance() { return std::uniform_int_distribution<int>(0, 1)(random_) == 1; }
  int Upto(int most) { return std::uniform_int_distribution<int>(0, most)(random_); }

  // What the world does by itself.
  JobEvent Happens() {
    switch (rows_.job.state()) {
      case Job::STATE_PREPARING:
        if (Upto(5) == 0) return Refused{};
        if (Upto(5) == 0) return HeldBack{"held"};
        return MadeReady{ready_, nullptr};
      case Job::STATE_QUEUED:
        if (Upto(5) == 0) return HeldBack{"held"};
        return Placed{.device = "cpu:0",
                      .device_id = "d",
                      .plan = plan_,
                      .bytes = 1 + Upto(99),
                      .most_bytes = 100,
                      .resume = {},
                      .nonce = "n",
                      .boot_id = "b"};
      default:
        break;
    }
    if (!rows_.attempt) return ResumeAsked{};
    if (rows_.attempt->state == AttemptState::kIntent && Chance()) return Spawned{9};
    if (Upto(2) == 0) return Ends();
    if (rows_.attempt->state != AttemptState::kLive) return Heard{.pid = 8, .reported = Chance()};
    if (rows_.job.job.plan_changes().has_pending()) {
      answer_.Clear();
      if (Chance()) answer_.set_refusal("no");
      return PlanAnswered{answer_};
    }
    if (rows_.job.state() == Job::STATE_RUNNING && Upto(3) == 0) return Displaced{"slows b"};
    if (Chance()) return FellSilent{absl::Seconds(30)};
    if (Chance()) return LimitAsked{Upto(1) * 50};
    return PlanOrdered{.plan = plan_, .bytes = 1 + Upto(99), .reason = "r"};
  }

  JobEvent Ends() {
    constexpr Ending kEndings[] = {Ending::kSucceeded,     Ending::kStopped,  Ending::kUserError,
                                   Ending::kOutOfMemory,   Ending::kDiskFull, Ending::kTransient,
                                   Ending::kInfrastructure};
    closed_ = ClosedAttempt();
    closed_.outcome.ending = kEndings[Upto(6)];
    closed_.outcome.exit = "{}";
    if (Chance()) closed_.output = ArtifactRecord{.job = "a", .dir = "/out"};
    if (Upto(9) == 0) closed_.checkpoints = absl::DataLossError("torn");
    if (Chance()) closed_.moves = "moved off cpu:0, which is drained";
    return AttemptClosed{closed_};
  }

  JobEvent Asked() {
    switch (Upto(3)) {
      case 0:
        return CancelAsked{.keep = Chance()};
      case 1:
        return PauseAsked{};
      case 2:
        return ResumeAsked{};
      default:
        return UpdateAsked{update_};
    }
  }

  void Take(JobStep step) {
    const JobState before = rows_.job.state();
    JobState at = before;
    for (const EventRecord& event : step.rest.events) {
      ASSERT_EQ(event.from, at);
      ASSERT_TRUE(CheckMove(event.from, event.to).ok());
      at = event.to;
    }
    ASSERT_EQ(at, step.same_job ? before : step.job.state());
    ASSERT_EQ(step.actions.drop_job, IsTerminal(at) && !IsTerminal(before));
    ASSERT_EQ(step.actions.drop_attempt, step.rest.release);
    if (step.actions.start_worker) {
      ASSERT_FALSE(rows_.attempt.has_value());
      ASSERT_EQ(step.attempt->epoch, rows_.job.job.epoch() + 1);
    }
    if (step.actions.stop_worker || step.actions.order_plan) {
      ASSERT_TRUE(rows_.attempt.has_value());
    }
    if (step.rest.reserve) reserved_ = step.rest.reserve->bytes;
    if (step.rest.release) reserved_ = 0;
    if (!step.same_job) rows_.job = std::move(step.job);
    if (step.attempt) rows_.attempt = std::move(step.attempt);
    if (step.actions.drop_attempt) {
      ASSERT_EQ(rows_.attempt->state, AttemptState::kClosed);
      rows_.attempt.reset();
    }
    ASSERT_EQ(HasAttempt(at), rows_.attempt.has_value()) << NameOf(at);
    ASSERT_EQ(reserved_ > 0, rows_.attempt.has_value());
    if (rows_.attempt) {
      ASSERT_NE(rows_.attempt->state, AttemptState::kClosed);
      ASSERT_GE(reserved_, rows_.attempt->cap_bytes);
    } else {
      ASSERT_FALSE(rows_.job.job.plan_changes().has_pending());
      ASSERT_FALSE(rows_.job.job.displacement().pending());
    }
    ASSERT_LE(rows_.job.infra_failures, kMaxInfraRetries + 1);
  }

  std::mt19937 random_{static_cast<unsigned>(GetParam())};
  Rows rows_ = RowsIn(Job::STATE_PREPARING);
  int64_t reserved_ = 0;
  v1::Plan plan_ = PlanOf("keep");
  ReadyJob ready_;
  ClosedAttempt closed_;
  v1::WorkerEvent::PlanChanged answer_;
  v1::UpdateJobRequest update_;
};

TEST_P(WalkTest, HoldsWhateverHappens) {
  ready_.folders.train = "/data";
  int ended = 0;
  for (int i = 0; i < 20'000; ++i) {
    const bool asked = Upto(4) == 0 || IsTerminal(rows_.job.state());
    const JobEvent event = asked ? Asked() : Happens();
    const JobState before = rows_.job.state();
    absl::StatusOr<JobStep> step = StepJob(rows_, event, {.now_us = i});
    if (!step.ok()) {  // Users ask for what cannot be; the world does not.
      ASSERT_TRUE(asked) << NameOf(before) << ", event " << event.index() << ": " << step.status();
      ASSERT_EQ(ReasonOf(step.status()), "WRONG_STATE") << step.status();
    } else if (!step->nothing) {
      Take(*std::move(step));
      if (HasFatalFailure()) {
        FAIL() << "after event " << event.index() << " in " << NameOf(before);
      }
    }
    if (!IsTerminal(rows_.job.state()) || Upto(3) > 0) continue;
    ++ended;
    rows_ = RowsIn(Job::STATE_PREPARING);
  }
  EXPECT_GT(ended, 500);
}

INSTANTIATE_TEST_SUITE_P(Seeds, WalkTest, testing::Range(1, 6));

}  // namespace
}  // namespace snug::server
