// What each event makes of a job in each state, and what holds of its rows after any of them.
#include "server/scheduler/job_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "server/artifact/checkpoints.h"
#include "server/job/errors.h"
#include "server/node/framing.h"

namespace snug::server {
namespace {

using testing::HasSubstr;
using v1::Job;

constexpr Moment kMoment = {.now_us = 1'000'000'000};
constexpr JobState kStates[] = {Job::STATE_PREPARING, Job::STATE_QUEUED,  Job::STATE_STARTING,
                                Job::STATE_RUNNING,   Job::STATE_PAUSING, Job::STATE_PAUSED,
                                Job::STATE_SUCCEEDED, Job::STATE_FAILED,  Job::STATE_CANCELLED,
                                Job::STATE_CANCELLING};

struct Rows {
  JobRecord job;
  std::optional<AttemptRecord> attempt;

  operator JobRows() const { return {job, attempt ? &*attempt : nullptr}; }
};

Rows RowsIn(JobState state) {
  Rows rows;
  rows.job.job.set_id("a");
  rows.job.job.set_state(state);
  rows.job.job.set_device("cpu:0");
  if (state != Job::STATE_PREPARING) rows.job.train_data = "/data";
  if (!HasAttempt(state)) return rows;
  rows.job.job.set_epoch(1);
  rows.attempt = AttemptRecord{.job = "a", .epoch = 1, .state = AttemptState::kLive};
  rows.attempt->device = "device";
  rows.attempt->cap_bytes = 100;
  return rows;
}

v1::Plan PlanOf(const std::string& name) {
  v1::Plan plan;
  plan.set_name(name);
  return plan;
}

// A user's request -> the state that it leads to from each state; those that are not here refuse it
// by the name of the state.
void ExpectMoves(const JobEvent& asked, const std::map<JobState, JobState>& moves) {
  for (const JobState state : kStates) {
    const Rows rows = RowsIn(state);
    const absl::StatusOr<JobStep> step = StepJob(rows, asked, kMoment);
    const auto to = moves.find(state);
    if (to == moves.end()) {
      ASSERT_FALSE(step.ok()) << NameOf(state);
      EXPECT_EQ(ReasonOf(step.status()), "WRONG_STATE");
      EXPECT_THAT(std::string(step.status().message()), HasSubstr(NameOf(state)));
      continue;
    }
    ASSERT_TRUE(step.ok()) << NameOf(state) << ": " << step.status();
    EXPECT_EQ(step->nothing, to->second == state) << NameOf(state);
    if (!step->nothing) {
      EXPECT_EQ(step->job.state(), to->second) << NameOf(state);
    }
  }
}

TEST(JobStepTest, CancelLeadsOutOfEveryStateThatIsNotAnEnd) {
  std::map<JobState, JobState> moves = {
      {Job::STATE_PREPARING, Job::STATE_CANCELLED}, {Job::STATE_QUEUED, Job::STATE_CANCELLED},
      {Job::STATE_PAUSED, Job::STATE_CANCELLED},    {Job::STATE_STARTING, Job::STATE_CANCELLING},
      {Job::STATE_RUNNING, Job::STATE_CANCELLING},  {Job::STATE_PAUSING, Job::STATE_CANCELLING},
      {Job::STATE_CANCELLED, Job::STATE_CANCELLED}};
  Rows rows = RowsIn(Job::STATE_CANCELLING);
  rows.job.job.set_keep(true);
  const absl::StatusOr<JobStep> at_once = StepJob(rows, CancelAsked{}, kMoment);
  ASSERT_TRUE(at_once.ok());
  EXPECT_FALSE(at_once->job.job.keep());  // Its export is not waited for any more.
  for (const JobState state : kStates) {
    if (state == Job::STATE_CANCELLING) continue;
    const absl::StatusOr<JobStep> step = StepJob(RowsIn(state), CancelAsked{}, kMoment);
    ASSERT_EQ(step.ok(), moves.contains(state)) << NameOf(state);
    if (!step.ok()) continue;
    EXPECT_EQ(step->nothing, state == Job::STATE_CANCELLED);
    if (step->nothing) continue;
    EXPECT_EQ(step->job.state(), moves[state]);
    EXPECT_EQ(step->actions.drop_job, IsTerminal(moves[state]));
    EXPECT_EQ(step->rest.events.size(), 1u);
  }
}

TEST(JobStepTest, KeepingAsksTheWorkerForItsExport) {
  for (const JobState state : {Job::STATE_STARTING, Job::STATE_RUNNING}) {
    const absl::StatusOr<JobStep> step = StepJob(RowsIn(state), CancelAsked{.keep = true}, kMoment);
    ASSERT_TRUE(step.ok());
    EXPECT_TRUE(step->job.job.keep());
    EXPECT_TRUE(step->actions.stop_worker);
  }
  // One that saves for its pause has no time to export; one that never has trained loses nothing.
  const absl::Status refused =
      StepJob(RowsIn(Job::STATE_PAUSING), CancelAsked{.keep = true}, kMoment).status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("does not train"));
  const Rows unbegun = RowsIn(Job::STATE_PAUSED);
  EXPECT_EQ(StepJob(unbegun, CancelAsked{.keep = true}, kMoment)->job.state(),
            Job::STATE_CANCELLED);
}

// What has trained and has no worker gets one for its export.
TEST(JobStepTest, WhatWaitsIsKeptByItsNextWorker) {
  for (const JobState state : {Job::STATE_PAUSED, Job::STATE_QUEUED}) {
    Rows rows = RowsIn(state);
    rows.job.job.mutable_progress()->set_global_step(3);
    const absl::StatusOr<JobStep> step = StepJob(rows, CancelAsked{.keep = true}, kMoment);
    ASSERT_TRUE(step.ok()) << step.status();
    EXPECT_EQ(step->job.state(), Job::STATE_QUEUED);
    EXPECT_EQ(step->actions.make_ready, state == Job::STATE_PAUSED);
    EXPECT_TRUE(step->job.job.keep());
    rows.job = step->job;
    EXPECT_TRUE(StepJob(rows, CancelAsked{.keep = true}, kMoment)->nothing);
    EXPECT_FALSE(StepJob(rows, PauseAsked{}, kMoment)->job.job.keep());
    EXPECT_EQ(StepJob(rows, CancelAsked{}, kMoment)->job.state(), Job::STATE_CANCELLED);
  }
  Rows starting = RowsIn(Job::STATE_STARTING);
  starting.job.job.set_keep(true);
  EXPECT_EQ(StepJob(starting, Heard{}, kMoment)->job.state(), Job::STATE_CANCELLING);
}

TEST(JobStepTest, PauseAndResume) {
  ExpectMoves(PauseAsked{}, {{Job::STATE_PREPARING, Job::STATE_PAUSED},
                             {Job::STATE_QUEUED, Job::STATE_PAUSED},
                             {Job::STATE_STARTING, Job::STATE_PAUSING},
                             {Job::STATE_RUNNING, Job::STATE_PAUSING},
                             {Job::STATE_PAUSING, Job::STATE_PAUSING},
                             {Job::STATE_PAUSED, Job::STATE_PAUSED}});
  ExpectMoves(ResumeAsked{}, {{Job::STATE_PAUSED, Job::STATE_QUEUED}});
  Rows unprepared = RowsIn(Job::STATE_PAUSED);
  unprepared.job.train_data.clear();
  const absl::StatusOr<JobStep> resumed = StepJob(unprepared, ResumeAsked{}, kMoment);
  ASSERT_TRUE(resumed.ok());
  EXPECT_EQ(resumed->job.state(), Job::STATE_PREPARING);
  EXPECT_TRUE(resumed->actions.make_ready);
}

// Asked once more, its worker is told once more: it may not have heard.
TEST(JobStepTest, KeepingTwiceTellsTheWorkerTwice) {
  Rows rows = RowsIn(Job::STATE_CANCELLING);
  rows.job.job.set_keep(true);
  const absl::StatusOr<JobStep> step = StepJob(rows, CancelAsked{.keep = true}, kMoment);
  ASSERT_TRUE(step.ok());
  EXPECT_TRUE(step->actions.stop_worker);
  EXPECT_TRUE(step->rest.events.empty());
}

TEST(JobStepTest, WhatCannotBeHadFailsTheJobButForItsCheckpoints) {
  v1::Error error;
  error.set_message("no such file");
  Rows rows = RowsIn(Job::STATE_QUEUED);
  const absl::StatusOr<JobStep> failed = StepJob(rows, Refused{error}, kMoment);
  ASSERT_TRUE(failed.ok());
  EXPECT_EQ(failed->job.state(), Job::STATE_FAILED);
  EXPECT_EQ(failed->job.job.error().message(), "no such file");
  error.set_reason(kCheckpointsDamaged);
  rows.job.job.set_epoch(2);
  const absl::StatusOr<JobStep> held = StepJob(rows, Refused{error}, kMoment);
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(held->job.state(), Job::STATE_PAUSED);
  EXPECT_FALSE(held->job.job.has_error());
  EXPECT_TRUE(held->actions.abandon_ready);
}

// Its plans are stored with what else there is to store, whether or not it moves.
TEST(JobStepTest, WhatIsReadyIsQueued) {
  ReadyJob ready;
  ready.folders.train = "/prepared";
  ready.checked.spec.set_model("/filled/in");
  ready.checked.spec.set_display_name("another that is alike");
  Rows preparing = RowsIn(Job::STATE_PREPARING);
  preparing.job.job.mutable_spec()->set_display_name("its own name");
  ready.checked.spec.mutable_memory()->set_host_budget("1GiB");
  const auto plans = std::make_shared<const PlansRecord>();
  const absl::StatusOr<JobStep> prepared = StepJob(preparing, MadeReady{ready, plans}, kMoment);
  ASSERT_TRUE(prepared.ok());
  EXPECT_EQ(prepared->job.state(), Job::STATE_QUEUED);
  EXPECT_EQ(prepared->job.train_data, "/prepared");
  EXPECT_EQ(prepared->job.job.spec().model(), "/filled/in");
  EXPECT_EQ(prepared->job.job.spec().display_name(), "its own name");
  EXPECT_EQ(prepared->ToChange().plans, plans);
  const absl::StatusOr<JobStep> again =
      StepJob(RowsIn(Job::STATE_QUEUED), MadeReady{ready, plans}, kMoment);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->job.train_data, "/data");
  EXPECT_EQ(again->job.job.spec().memory().host_budget(), "1GiB");  // What its plans are of.
  EXPECT_EQ(again->ToChange().plans, plans);
}

TEST(JobStepTest, AWorkerThatIsThereLeavesItsJobsRowAlone) {
  Rows rows = RowsIn(Job::STATE_STARTING);
  rows.attempt->state = AttemptState::kIntent;
  const absl::StatusOr<JobStep> step = StepJob(rows, Spawned{77}, kMoment);
  ASSERT_TRUE(step.ok());
  EXPECT_EQ(step->ToChange().job, nullptr);
  EXPECT_EQ(step->ToChange().attempt->shim_pid, 77);
}

TEST(JobStepTest, APlaceIsAnIntentWithItsReservation) {
  const v1::Plan plan = PlanOf("keep");
  Rows rows = RowsIn(Job::STATE_QUEUED);
  rows.job.job.set_epoch(4);
  const CheckpointRecord resume = {.job = "a", .step = 7, .dir = "/checkpoint"};
  const absl::StatusOr<JobStep> step = StepJob(rows,
                                               Placed{.device = "gpu:1",
                                                      .device_id = "uuid",
                                                      .plan = plan,
                                                      .bytes = 50,
                                                      .most_bytes = 70,
                                                      .resume = resume,
                                                      .nonce = "n",
                                                      .boot_id = "b"},
                                               kMoment);
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(step->job.state(), Job::STATE_STARTING);
  EXPECT_EQ(step->job.job.device(), "gpu:1");
  ASSERT_TRUE(step->attempt.has_value());
  EXPECT_EQ(step->attempt->state, AttemptState::kIntent);
  EXPECT_EQ(step->attempt->epoch, 5);
  EXPECT_EQ(step->attempt->resume_step, 7);
  ASSERT_TRUE(step->rest.reserve.has_value());
  EXPECT_EQ(step->rest.reserve->bytes, 50);
  EXPECT_EQ(step->job.job.plan_changes().most_bytes(), 70);
  EXPECT_EQ(step->rest.reserve->device, "uuid");
  EXPECT_TRUE(step->actions.start_worker);
  EXPECT_EQ(step->urgency, Urgency::kRefusable);
}

TEST(JobStepTest, TheLargerOfTwoPlansIsReservedUntilTheAnswer) {
  Rows rows = RowsIn(Job::STATE_RUNNING);
  rows.attempt->plan = PlanOf("keep");
  for (const int64_t bytes : {60, 140}) {
    const PlanOrdered ordered = {.plan = PlanOf("mesa"), .bytes = bytes, .reason = "room"};
    const absl::StatusOr<JobStep> step = StepJob(rows, ordered, kMoment);
    ASSERT_TRUE(step.ok()) << step.status();
    EXPECT_TRUE(step->actions.order_plan);
    EXPECT_EQ(step->rest.reserve->bytes, std::max<int64_t>(100, bytes));
    EXPECT_FALSE(step->attempt.has_value());  // The worker has not said so yet.
    const Rows ordered_rows = {step->job, rows.attempt};
    v1::WorkerEvent::PlanChanged answer;
    answer.set_number(1);
    const absl::StatusOr<JobStep> taken = StepJob(ordered_rows, PlanAnswered{answer}, kMoment);
    ASSERT_TRUE(taken.ok()) << taken.status();
    EXPECT_EQ(taken->attempt->plan.name(), "mesa");
    EXPECT_EQ(taken->rest.reserve->bytes, bytes);
    EXPECT_TRUE(taken->actions.shrink_promise);
    EXPECT_EQ(taken->job.job.plan_changes().count(), 1);
    answer.set_refusal("no");
    const absl::StatusOr<JobStep> refused = StepJob(ordered_rows, PlanAnswered{answer}, kMoment);
    ASSERT_TRUE(refused.ok()) << refused.status();
    EXPECT_EQ(refused->attempt->plan.name(), "keep");
    EXPECT_EQ(refused->rest.reserve->bytes, 100);
    EXPECT_TRUE(refused->actions.keep_plan);
    EXPECT_FALSE(refused->job.job.plan_changes().has_pending());
  }
}

// What the steps have told of the time that is predicted holds for the attempt's next plan, and for
// no other attempt.
TEST(JobStepTest, TheNextPlanOfAnAttemptIsCorrectedAsItsLastOne) {
  v1::Plan plan = PlanOf("mesa");
  plan.set_step_seconds(0.75);
  Rows rows = RowsIn(Job::STATE_RUNNING);
  rows.job.job.mutable_step_time()->set_predicted_seconds(0.5);
  rows.job.job.mutable_step_time()->set_corrected_seconds(1.0);
  const absl::StatusOr<JobStep> step =
      StepJob(rows, PlanOrdered{.plan = plan, .bytes = 60}, kMoment);
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(step->job.job.step_time().corrected_seconds(), 1.0);
  v1::WorkerEvent::PlanChanged answer;
  answer.set_number(1);
  const absl::StatusOr<JobStep> taken =
      StepJob(Rows{step->job, rows.attempt}, PlanAnswered{answer}, kMoment);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->job.job.step_time().predicted_seconds(), 0.75);
  EXPECT_EQ(taken->job.job.step_time().corrected_seconds(), 1.5);
  Rows queued = RowsIn(Job::STATE_QUEUED);
  *queued.job.job.mutable_step_time() = taken->job.job.step_time();
  const absl::StatusOr<JobStep> placed =
      StepJob(queued, Placed{.device = "cpu:0", .plan = plan, .bytes = 60}, kMoment);
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_EQ(placed->job.job.step_time().predicted_seconds(), 0.75);
  EXPECT_EQ(placed->job.job.step_time().corrected_seconds(), 0.0);
}

// What was seen of an attempt's memory is of the plan that was in force, until another one is.
TEST(JobStepTest, MemoryIsLookedAtAnewUnderAnotherPlan) {
  Rows rows = RowsIn(Job::STATE_RUNNING);
  v1::JobMemory& memory = *rows.job.job.mutable_memory();
  memory.add_looks();
  memory.set_uncounted_bytes(100);
  memory.set_warning("too much");
  const absl::StatusOr<JobStep> step =
      StepJob(rows, PlanOrdered{.plan = PlanOf("mesa"), .bytes = 60}, kMoment);
  ASSERT_TRUE(step.ok()) << step.status();
  v1::WorkerEvent::PlanChanged answer;
  answer.set_number(1);
  for (const char* refusal : {"no", ""}) {
    answer.set_refusal(refusal);
    const absl::StatusOr<JobStep> taken =
        StepJob(Rows{step->job, rows.attempt}, PlanAnswered{answer}, kMoment);
    ASSERT_TRUE(taken.ok()) << taken.status();
    const bool kept = *refusal != '\0';
    EXPECT_EQ(taken->job.job.memory().looks_size(), kept ? 1 : 0);
    EXPECT_EQ(taken->job.job.memory().uncounted_bytes(), kept ? 100 : 0);
    EXPECT_EQ(taken->job.job.memory().warning(), kept ? "too much" : "");
  }
}

// A worker has one order at a time, and answers that one.
TEST(JobStepTest, OrdersAndAnswersComeByTurns) {
  const Rows rows = RowsIn(Job::STATE_RUNNING);
  const PlanOrdered ordered = {.plan = PlanOf("mesa"), .bytes = 10};
  const v1::WorkerEvent::PlanChanged answer;
  EXPECT_TRUE(absl::IsInternal(StepJob(rows, PlanAnswered{answer}, kMoment).status()));
  const absl::StatusOr<JobStep> step = StepJob(rows, ordered, kMoment);
  ASSERT_TRUE(step.ok());
  const Rows waits = {step->job, rows.attempt};
  EXPECT_TRUE(absl::IsInternal(StepJob(waits, ordered, kMoment).status()));
}

TEST(JobStepTest, AnOrderThatNoFrameHoldsIsRefused) {
  const PlanOrdered ordered = {.plan = PlanOf(std::string(kMaxFrameBytes, 'x')), .bytes = 1};
  const absl::Status refused = StepJob(RowsIn(Job::STATE_RUNNING), ordered, kMoment).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
}

TEST(JobStepTest, WhatNeedsAnAttemptIsAMistakeWithoutOne) {
  const v1::WorkerEvent::PlanChanged answer;
  const ClosedAttempt closed;
  for (const JobEvent& event :
       {JobEvent(Spawned{7}), JobEvent(Heard{}), JobEvent(FellSilent{}), JobEvent(LimitAsked{}),
        JobEvent(PlanOrdered{}), JobEvent(PlanAnswered{answer}), JobEvent(AttemptClosed{closed})})
    EXPECT_TRUE(absl::IsInternal(StepJob(RowsIn(Job::STATE_QUEUED), event, kMoment).status()))
        << event.index();
}

// A walk of random events, each of those that can happen in the state that the last one led to.
// Rows, transactions and actions are held against each other after each.
class WalkTest : public testing::TestWithParam<int> {
 protected:
  bool Chance() { return std::uniform_int_distribution<int>(0, 1)(random_) == 1; }
  int Upto(int most) { return std::uniform_int_distribution<int>(0, most)(random_); }

  // Of what the world does by itself.
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
    closed_.moves = Chance();
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
