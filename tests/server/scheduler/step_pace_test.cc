#include "server/scheduler/step_pace.h"

#include <gtest/gtest.h>

namespace snug::server {
namespace {

constexpr PaceLimits kLimits = {.shortest = absl::Minutes(2),
                                .other_work = absl::Minutes(30),
                                .other_work_in_all = absl::Hours(12)};

class StepPaceTest : public testing::Test {
 protected:
  StepPaceTest() { pace_.Begin(now_); }

  void Step(int64_t step, double seconds) {
    now_ += absl::Seconds(seconds);
    v1::Progress progress;
    progress.set_global_step(step);
    progress.set_max_steps(1000);
    progress.set_step_seconds(seconds);
    progress.set_epoch(static_cast<double>(step) / 100.0);
    pace_.OnStep(spec_, progress, now_);
  }
  void Beat(double cpu_seconds) {
    v1::WorkerEvent::Heartbeat beat;
    beat.set_cpu_seconds(cpu_seconds);
    pace_.OnHeartbeat(beat, now_);
  }
  // Whether it hangs after so long.
  bool Hangs(absl::Duration after) const {
    return pace_.Overdue(spec_, kLimits, now_ + after) > absl::ZeroDuration();
  }

  v1::JobSpec spec_;
  StepPace pace_;
  absl::Duration now_ = absl::Hours(5);
};

// Not the next step, but what follows the last one.
TEST_F(StepPaceTest, AnExportHasTheLimitOfOtherWork) {
  for (int64_t step = 1; step <= 10; ++step) Step(step, 0.5);
  PaceLimits limits = kLimits;
  limits.exports = true;
  EXPECT_LE(pace_.Overdue(spec_, limits, now_ + absl::Minutes(29)), absl::ZeroDuration());
  EXPECT_GT(pace_.Overdue(spec_, limits, now_ + absl::Minutes(31)), absl::ZeroDuration());
}

TEST_F(StepPaceTest, FastStepsHaveTheShortestLimit) {
  for (int64_t step = 1; step <= 10; ++step) Step(step, 0.5);
  EXPECT_FALSE(Hangs(absl::Seconds(119)));
  EXPECT_TRUE(Hangs(absl::Seconds(121)));
}

TEST_F(StepPaceTest, SlowStepsHaveTwentyOfTheirMedian) {
  for (int64_t step = 1; step <= 9; ++step) Step(step, step == 5 ? 900.0 : 30.0);
  EXPECT_FALSE(Hangs(absl::Seconds(599)));
  EXPECT_TRUE(Hangs(absl::Seconds(601)));
}

// Processor time alone is no step.
TEST_F(StepPaceTest, AThreadThatSpinsHangsToo) {
  for (int64_t step = 1; step <= 10; ++step) Step(step, 0.5);
  const absl::Duration last = now_;
  for (int i = 1; i <= 30; ++i) {
    now_ += absl::Seconds(5);
    Beat(5.0 * i);
  }
  EXPECT_GT(pace_.Overdue(spec_, kLimits, now_), absl::ZeroDuration());
  EXPECT_EQ(pace_.Overdue(spec_, kLimits, last + absl::Minutes(2)), absl::ZeroDuration());
}

TEST_F(StepPaceTest, LoadingMayTakeLongAsLongAsItWorks) {
  EXPECT_FALSE(Hangs(absl::Minutes(29)));
  EXPECT_TRUE(Hangs(absl::Minutes(31)));
  now_ += absl::Minutes(29);
  Beat(60.0);
  EXPECT_FALSE(Hangs(absl::Minutes(29)));
}

// Where each step is saved no step is ever next, and each has seen what a save takes.
TEST_F(StepPaceTest, WhereEachStepIsSavedASaveHasTwentyOfTheLongest) {
  spec_.mutable_training()->set_save_steps(1);
  for (int64_t step = 1; step <= 10; ++step) {
    Step(step, 0.5);
    now_ += absl::Seconds(step == 5 ? 30 : 10);
  }
  Step(11, 0.5);
  EXPECT_FALSE(Hangs(absl::Seconds(120 + 599)));
  EXPECT_TRUE(Hangs(absl::Seconds(120 + 601)));
  Beat(1e6);  // Processor time is no save.
  EXPECT_TRUE(Hangs(absl::Seconds(120 + 601)));
}

// Of what is due seldom, each has its own: an evaluation is not held to what saves take.
TEST_F(StepPaceTest, AnEvaluationIsComparedWithEvaluations) {
  spec_.mutable_training()->set_save_steps(10);
  spec_.mutable_training()->set_eval_steps(45);
  for (int64_t step = 1; step <= 44; ++step) Step(step, 0.5);
  EXPECT_FALSE(Hangs(absl::Minutes(29)));  // The first.
  Step(45, 0.5);
  EXPECT_FALSE(Hangs(absl::Minutes(29)));
  now_ += absl::Minutes(10);
  for (int64_t step = 46; step <= 48; ++step) Step(step, 0.5);
  Step(49, 0.5);
  EXPECT_TRUE(Hangs(absl::Minutes(3)));  // A save, as often before.
}

// Early stopping may have ended the run: an export takes as long as it takes.
TEST_F(StepPaceTest, AnEvaluationThatMayBeTheLastHasTheLimitOfOtherWork) {
  spec_.mutable_training()->set_eval_steps(1);
  for (int64_t step = 1; step <= 10; ++step) Step(step, 0.5);
  EXPECT_TRUE(Hangs(absl::Minutes(3)));
  spec_.mutable_training()->set_early_stopping_patience(2);
  EXPECT_FALSE(Hangs(absl::Minutes(29)));
  EXPECT_TRUE(Hangs(absl::Minutes(31)));
}

TEST_F(StepPaceTest, AThreadThatSpinsBetweenStepsHangsInTheEnd) {
  spec_.mutable_training()->set_save_steps(1);
  spec_.mutable_training()->set_eval_steps(1);
  spec_.mutable_training()->set_early_stopping_patience(2);
  for (int64_t step = 1; step <= 10; ++step) Step(step, 0.5);
  const auto spins_for = [&](absl::Duration time) {
    for (const absl::Duration end = now_ + time; now_ < end; now_ += absl::Minutes(1))
      Beat(absl::ToDoubleSeconds(now_));
  };
  spins_for(absl::Hours(11));
  EXPECT_FALSE(Hangs(absl::ZeroDuration()));
  spins_for(absl::Hours(2));
  EXPECT_TRUE(Hangs(absl::ZeroDuration()));
}

// An evaluation of two hours may take forty.
TEST_F(StepPaceTest, LongPausesMayBeLonger) {
  spec_.mutable_training()->set_eval_steps(1);
  Step(1, 0.5);
  now_ += absl::Hours(2);
  Step(2, 0.5);
  now_ += absl::Hours(39);
  Beat(1e5);
  EXPECT_FALSE(Hangs(absl::ZeroDuration()));
  now_ += absl::Hours(2);
  Beat(2e5);
  EXPECT_TRUE(Hangs(absl::ZeroDuration()));
}

TEST_F(StepPaceTest, EvaluatingSavingAndExportingAreNoSteps) {
  spec_.mutable_training()->set_eval_steps(20);
  spec_.mutable_training()->set_save_steps(50);
  for (int64_t step = 1; step <= 18; ++step) Step(step, 0.5);
  EXPECT_TRUE(Hangs(absl::Minutes(3)));
  Step(19, 0.5);  // Step 20 is evaluated before it is reported.
  EXPECT_FALSE(Hangs(absl::Minutes(3)));
  for (int64_t step = 20; step <= 50; ++step) Step(step, 0.5);
  EXPECT_FALSE(Hangs(absl::Minutes(3)));  // It is being saved.
  for (int64_t step = 51; step <= 99; ++step) Step(step, 0.5);
  EXPECT_FALSE(Hangs(absl::Minutes(3)));  // The epoch ends.
  for (int64_t step = 100; step <= 1000; ++step) Step(step, 0.5);
  EXPECT_FALSE(Hangs(absl::Minutes(3)));  // It is being exported.
  EXPECT_TRUE(Hangs(absl::Minutes(31)));
}

}  // namespace
}  // namespace snug::server
