// A job whose plan predicts half a second a step.
#include "server/scheduler/step_correction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace snug::server {
namespace {

class StepCorrectionTest : public testing::Test {
 protected:
  StepCorrectionTest() {
    job_.mutable_plan()->set_step_seconds(0.5);
    job_.mutable_progress()->set_max_steps(1000);
    SetStepTime(0.0, job_);
  }

  void Step(int64_t step, double seconds) {
    job_.mutable_progress()->set_global_step(step);
    job_.mutable_progress()->set_step_seconds(seconds);
    correction_.OnStep(began_at_, job_);
  }
  void Steps(int64_t from, int64_t to, double seconds) {
    for (int64_t step = from; step <= to; ++step) Step(step, seconds);
  }
  // As a worker's answer to an order does.
  void Change(double predicted) {
    job_.mutable_plan()->set_step_seconds(predicted);
    SetStepTime(StepRatioOf(job_), job_);
  }

  v1::Job job_;
  int64_t began_at_ = 0;
  StepCorrection correction_;
};

TEST_F(StepCorrectionTest, FromTheThirdStepOnItIsKnown) {
  Steps(1, 2, 9.0);
  EXPECT_EQ(StepRatioOf(job_), 0.0);
  EXPECT_EQ(LeftUntilEnd(job_), absl::InfiniteDuration());
  Step(3, 1.0);
  EXPECT_DOUBLE_EQ(StepRatioOf(job_), 2.0);
  EXPECT_DOUBLE_EQ(job_.step_time().predicted_seconds(), 0.5);
  EXPECT_DOUBLE_EQ(job_.step_time().corrected_seconds(), 1.0);
  EXPECT_EQ(LeftUntilEnd(job_), absl::Seconds(997));
}

// Of reports that nobody took in time only the last one comes.
TEST_F(StepCorrectionTest, StepsCountNotReports) {
  Step(3, 1.0);
  EXPECT_DOUBLE_EQ(StepRatioOf(job_), 2.0);
}

TEST_F(StepCorrectionTest, AnAttemptThatGoesOnFromACheckpointWarmsUpToo) {
  began_at_ = 100;
  Steps(101, 102, 9.0);
  EXPECT_EQ(StepRatioOf(job_), 0.0);
  Step(103, 1.0);
  EXPECT_DOUBLE_EQ(StepRatioOf(job_), 2.0);
}

TEST_F(StepCorrectionTest, FewStepsThatAreFarOffDoNotMoveIt) {
  for (int64_t step = 3; step <= 22; ++step) Step(step, step % 5 == 0 ? 90.0 : 1.0);
  EXPECT_DOUBLE_EQ(StepRatioOf(job_), 2.0);
}

// A neighbour has come: by the median of 32 that shows once 17 steps were made beside it.
TEST_F(StepCorrectionTest, ItTellsHowTheJobRunsNow) {
  Steps(3, 102, 1.0);
  Steps(103, 118, 2.0);
  EXPECT_DOUBLE_EQ(StepRatioOf(job_), 2.0);
  Step(119, 2.0);
  EXPECT_DOUBLE_EQ(StepRatioOf(job_), 4.0);
}

TEST_F(StepCorrectionTest, ItHoldsForTheNextPlanWhoseFirstStepWarmsUp) {
  Steps(3, 10, 1.0);
  Change(0.75);
  EXPECT_DOUBLE_EQ(job_.step_time().predicted_seconds(), 0.75);
  EXPECT_DOUBLE_EQ(job_.step_time().corrected_seconds(), 1.5);
  EXPECT_EQ(LeftUntilEnd(job_), absl::Seconds(990 * 1.5));
  Step(11, 0.03);
  Steps(12, 60, 3.0);
  EXPECT_DOUBLE_EQ(StepRatioOf(job_), 4.0);
}

TEST_F(StepCorrectionTest, TheFirstStepUnderAnotherPlanIsNotCounted) {
  Step(3, 1.0);
  Change(0.75);
  Step(4, 0.03);  // Would be the lower one of two.
  EXPECT_DOUBLE_EQ(StepRatioOf(job_), 2.0);
  Step(5, 0.75);
  EXPECT_DOUBLE_EQ(StepRatioOf(job_), 1.0);
}

// Its worker may have gone to the other plan already.
TEST_F(StepCorrectionTest, AStepBesideAnOrderIsNotCounted) {
  Step(3, 1.0);
  job_.mutable_plan_changes()->mutable_pending();
  Step(4, 0.03);
  EXPECT_DOUBLE_EQ(StepRatioOf(job_), 2.0);
  job_.mutable_plan_changes()->clear_pending();
  Step(5, 0.25);
  EXPECT_DOUBLE_EQ(StepRatioOf(job_), 0.5);
}

// A worker that dials again says once more where it is.
TEST_F(StepCorrectionTest, AStepCountsOnce) {
  Steps(3, 4, 1.0);
  for (int times = 0; times < 5; ++times) Step(4, 0.25);
  EXPECT_DOUBLE_EQ(StepRatioOf(job_), 2.0);
}

TEST_F(StepCorrectionTest, WhatCannotBeTrueIsNotCounted) {
  int64_t step = 3;
  for (const double absurd : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity(),
                              1e300, 1e-300, 5.1e5, 4.9e-7})
    Step(step++, absurd);
  EXPECT_EQ(StepRatioOf(job_), 0.0);
  Step(step, 1.0);
  EXPECT_DOUBLE_EQ(StepRatioOf(job_), 2.0);
}

// One that an older version has stored.
TEST_F(StepCorrectionTest, WhereAPlanPredictsNothingTheLastStepTells) {
  job_.mutable_plan()->clear_step_seconds();
  SetStepTime(0.0, job_);
  Steps(1, 10, 1.0);
  EXPECT_EQ(StepRatioOf(job_), 0.0);
  EXPECT_EQ(LeftUntilEnd(job_), absl::Seconds(990));
}

// Of many steps under the plan before, their median counts as one.
TEST_F(StepCorrectionTest, TheNextPlansOwnStepsSoonCount) {
  Steps(3, 100, 5.0);
  Change(0.75);
  Steps(101, 103, 0.75);
  EXPECT_DOUBLE_EQ(StepRatioOf(job_), 1.0);
}

// What the job's row kept stands for one of the steps before.
TEST_F(StepCorrectionTest, ItOutlivesTheDaemon) {
  Steps(3, 10, 1.0);
  correction_ = StepCorrection();
  EXPECT_EQ(LeftUntilEnd(job_), absl::Seconds(990));
  Step(11, 90.0);
  EXPECT_DOUBLE_EQ(StepRatioOf(job_), 2.0);
  Steps(12, 13, 1.5);
  EXPECT_DOUBLE_EQ(StepRatioOf(job_), 3.0);
}

TEST_F(StepCorrectionTest, WithoutAnEndNoTimeIsLeft) {
  job_.mutable_progress()->clear_max_steps();
  Step(3, 1.0);
  EXPECT_EQ(LeftUntilEnd(job_), absl::InfiniteDuration());
  job_.mutable_progress()->set_max_steps(3);
  EXPECT_EQ(LeftUntilEnd(job_), absl::ZeroDuration());
}

}  // namespace
}  // namespace snug::server
