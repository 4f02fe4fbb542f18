// What each event makes of a job in each state.
#include "server/scheduler/job_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "server/artifact/checkpoints.h"
#include "server/job/errors.h"
#include "server/node/framing.h"
#include "tests/server/scheduler/job_rows.h"

namespace snug::server {
namespace {

using testing::HasSubstr;
using v1::Job;

constexpr Moment kMoment = {.now_us = 1'000'000'000};
constexpr JobState kStates[] = {Job::STATE_PREPARING, Job::STATE_QUEUED,  Job::STATE_STARTING,
                                Job::STATE_RUNNING,   Job::STATE_PAUSING, Job::STATE_PAUSED,
                                Job::STATE_SUCCEEDED, Job::STATE_FAILED,  Job::STATE_CANCELLED,
                                Job::STATE_CANCELLING};

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

// Its worker, which obeys one order to end, saves a checkpoint already: the next one exports that.
TEST(JobStepTest, WhatIsOnItsWayOffItsDeviceIsKeptByItsNextWorker) {
  Rows rows = RowsIn(Job::STATE_RUNNING);
  rows.job.job.mutable_displacement()->set_pending(true);
  rows.job.job.mutable_displacement()->set_reason("slows b");
  const absl::StatusOr<JobStep> step = StepJob(rows, CancelAsked{.keep = true}, kMoment);
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(step->job.state(), Job::STATE_RUNNING);
  EXPECT_TRUE(step->job.job.keep());
  EXPECT_TRUE(step->job.job.displacement().pending());
  EXPECT_FALSE(step->actions.stop_worker);
  EXPECT_EQ(step->job.job.reason(),
            "saves a checkpoint and leaves its device: slows b; its next worker exports what there "
            "is");
  rows.job = step->job;
  EXPECT_TRUE(StepJob(rows, CancelAsked{.keep = true}, kMoment)->nothing);
  EXPECT_FALSE(StepJob(rows, PauseAsked{}, kMoment)->job.job.keep());
  EXPECT_EQ(StepJob(rows, CancelAsked{}, kMoment)->job.state(), Job::STATE_CANCELLING);
}

// Who is behind a job that runs depends on its priority.
TEST(JobStepTest, AnotherPriorityAsksForARound) {
  const Rows rows = RowsIn(Job::STATE_RUNNING);
  v1::UpdateJobRequest request;
  (*request.mutable_labels())["a"] = "b";
  EXPECT_FALSE(StepJob(rows, UpdateAsked{request}, kMoment)->actions.ask_round);
  request.set_priority(-1);
  EXPECT_TRUE(StepJob(rows, UpdateAsked{request}, kMoment)->actions.ask_round);
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

// Until its user lets it go on, or ends it.
TEST(JobStepTest, WhyTheDaemonPausesAJobIsRemembered) {
  Rows rows = RowsIn(Job::STATE_RUNNING);
  const absl::StatusOr<JobStep> asked = StepJob(rows, PauseAsked{"it is far off"}, kMoment);
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ(asked->job.state(), Job::STATE_PAUSING);
  EXPECT_EQ(asked->job.job.pause_cause(), "it is far off");
  EXPECT_TRUE(asked->actions.stop_worker);
  rows.job = asked->job;
  EXPECT_TRUE(StepJob(rows, PauseAsked{}, kMoment)->nothing);
  EXPECT_EQ(StepJob(rows, CancelAsked{}, kMoment)->job.job.pause_cause(), "");
  Rows paused = RowsIn(Job::STATE_PAUSED);
  paused.job.job.set_pause_cause("it is far off");
  EXPECT_EQ(StepJob(paused, ResumeAsked{}, kMoment)->job.job.pause_cause(), "");
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

// Its worker is told once; where it no longer runs there is nobody to tell.
TEST(JobStepTest, AJobThatHasToLeaveIsToldToSaveACheckpoint) {
  const Rows rows = RowsIn(Job::STATE_RUNNING);
  const absl::StatusOr<JobStep> step = StepJob(rows, Displaced{"slows b"}, kMoment);
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(step->job.state(), Job::STATE_RUNNING);
  EXPECT_EQ(step->job.job.reason(), "saves a checkpoint and leaves its device: slows b");
  EXPECT_EQ(step->job.job.displacement().reason(), "slows b");
  EXPECT_EQ(step->job.job.displacement().count(), 1);
  EXPECT_TRUE(step->job.job.displacement().pending());
  EXPECT_TRUE(step->actions.stop_worker);
  EXPECT_FALSE(step->attempt.has_value());
  EXPECT_EQ(step->urgency, Urgency::kRefusable);
  EXPECT_TRUE(StepJob(Rows{step->job, rows.attempt}, Displaced{"slows c"}, kMoment)->nothing);
  for (const JobState state : {Job::STATE_STARTING, Job::STATE_PAUSING, Job::STATE_CANCELLING})
    EXPECT_TRUE(absl::IsInternal(StepJob(RowsIn(state), Displaced{}, kMoment).status()));
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
       {JobEvent(Spawned{7}), JobEvent(Heard{}), JobEvent(FellSilent{}), JobEvent(Displaced{}),
        JobEvent(LimitAsked{}), JobEvent(PlanOrdered{}), JobEvent(PlanAnswered{answer}),
        JobEvent(AttemptClosed{closed})})
    EXPECT_TRUE(absl::IsInternal(StepJob(RowsIn(Job::STATE_QUEUED), event, kMoment).status()))
        << event.index();
}

}  // namespace
}  // namespace snug::server
