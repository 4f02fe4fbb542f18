// The states of a job on its way to being placed.
#include "server/scheduler/readiness.h"

#include <gtest/gtest.h>

#include <memory>

namespace snug::server {
namespace {

using State = Readiness::State;

constexpr absl::Duration kNow = absl::Seconds(1000);

TEST(ReadinessTest, WorkThatEndsWellMakesReady) {
  Readiness readiness;
  EXPECT_EQ(readiness.state(), State::kAwaited);
  EXPECT_TRUE(readiness.IsDue(kNow));
  const Readiness::Abandoned run = readiness.Begin();
  EXPECT_EQ(readiness.state(), State::kUnderWay);
  EXPECT_FALSE(readiness.IsDue(kNow));
  EXPECT_EQ(readiness.job(), nullptr);
  readiness.Finish(std::make_shared<const ReadyJob>());
  EXPECT_EQ(readiness.state(), State::kReady);
  EXPECT_NE(readiness.job(), nullptr);
  EXPECT_FALSE(readiness.IsDue(kNow));
  EXPECT_FALSE(*run);
}

TEST(ReadinessTest, WhereAJobGoesOnFromIsItsOwn) {
  const auto ready = std::make_shared<const ReadyJob>();
  Readiness behind, new_job;
  behind.Finish(ready, CheckpointRecord{.step = 7});
  new_job.Finish(ready);
  EXPECT_EQ(behind.resume()->step, 7);
  EXPECT_FALSE(new_job.resume());
  behind.GoOnFrom(CheckpointRecord{.step = 9});
  EXPECT_EQ(behind.resume()->step, 9);
  behind.Reset();
  EXPECT_FALSE(behind.resume());
}

TEST(ReadinessTest, ResultsOfAnAbandonedRunAreNotAwaited) {
  Readiness readiness;
  const Readiness::Abandoned first = readiness.Begin();
  EXPECT_TRUE(readiness.Awaits(first));
  readiness.Reset();
  EXPECT_TRUE(*first);
  EXPECT_FALSE(readiness.Awaits(first));
  const Readiness::Abandoned second = readiness.Begin();
  EXPECT_FALSE(readiness.Awaits(first));
  EXPECT_TRUE(readiness.Awaits(second));
  EXPECT_FALSE(*second);
}

TEST(ReadinessTest, AJobThatGoesAbandonsItsRun) {
  auto readiness = std::make_unique<Readiness>();
  const Readiness::Abandoned run = readiness->Begin();
  readiness.reset();
  EXPECT_TRUE(*run);
}

TEST(ReadinessTest, WhatIsHeldIsDueAfterAPauseThatGrows) {
  Readiness readiness;
  absl::Duration now = kNow;
  readiness.Begin();
  const absl::Duration first = readiness.Hold(now);
  EXPECT_TRUE(readiness.IsHeld(now));
  EXPECT_FALSE(readiness.IsDue(now));
  now += first;
  EXPECT_FALSE(readiness.IsHeld(now));
  EXPECT_TRUE(readiness.IsDue(now));
  readiness.Begin();
  EXPECT_GT(readiness.Hold(now), first);
  EXPECT_EQ(readiness.HeldFor(now), first);  // Since the first time in a row.
  readiness.Begin();
  readiness.Finish(std::make_shared<const ReadyJob>());
  EXPECT_EQ(readiness.HeldFor(now), absl::ZeroDuration());
}

// The store refused it, or a pool was full: how long its files have been away is another matter.
TEST(ReadinessTest, WhatIsNoFaultOfTheJobsDoesNotCountAsHeld) {
  Readiness readiness;
  readiness.Begin();
  const absl::Duration first = readiness.Hold(kNow);
  const Readiness::Abandoned run = readiness.Begin();
  readiness.Withdraw();
  EXPECT_TRUE(*run);
  EXPECT_TRUE(readiness.IsDue(kNow));
  EXPECT_EQ(readiness.HeldFor(kNow + first), first);
  readiness.Begin();
  readiness.TryAgain(kNow);
  EXPECT_TRUE(readiness.IsHeld(kNow));
  EXPECT_TRUE(readiness.IsDue(kNow + first));
  EXPECT_EQ(readiness.HeldFor(kNow + first), absl::ZeroDuration());
}

// A user who resumes a job does not wait for what it was held for.
TEST(ReadinessTest, AResetForgetsThatItWasHeld) {
  Readiness readiness;
  readiness.Begin();
  const absl::Duration first = readiness.Hold(kNow);
  readiness.Reset();
  EXPECT_TRUE(readiness.IsDue(kNow));
  readiness.Begin();
  EXPECT_EQ(readiness.Hold(kNow), first);
}

}  // namespace
}  // namespace snug::server
