// A job whose plan predicts half a second a step, on a device that it has for itself or shares.
#include "server/scheduler/interference.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/scheduler/step_correction.h"

namespace snug::server {
namespace {

constexpr absl::Duration kAfter = absl::Seconds(60);

class InterferenceTest : public testing::Test {
 protected:
  InterferenceTest() {
    job_.set_id("a");
    job_.mutable_plan()->set_step_seconds(0.5);
    SetStepTime(0.0, job_);
  }

  // A second apart.
  void Steps(int count, double ratio, const Company& company = {}) {
    for (int i = 0; i < count; ++i) {
      now_ += absl::Seconds(1);
      if (interference_.OnStep({.ratio = ratio, .at = now_}, company, kAfter, job_)) ++in_vain_;
    }
  }
  void Leaves(const std::string& neighbour) {
    interference_.OnDeparture(neighbour, now_, absl::Hours(1));
  }
  static Company Beside(std::vector<std::string> neighbours, double fair_share = 1.0) {
    return {.neighbours = std::move(neighbours), .fair_share = fair_share};
  }
  static Company Predictable(Company company) {
    company.predictable = true;
    return company;
  }
  double Slowdown() const { return job_.step_time().slowdown(); }

  v1::Job job_;
  absl::Duration now_ = absl::Hours(1);
  Interference interference_;
  int in_vain_ = 0;  // Departures.
};

TEST(FairShareTest, TimeOfAGpuIsSlicedAndThreadsOfACpuAreDivided) {
  EXPECT_EQ(FairShareOf(/*gpu=*/true, /*jobs=*/1, /*threads=*/8, /*device_threads=*/4), 1.0);
  EXPECT_EQ(FairShareOf(true, 3, 8, 4), 3.0);
  EXPECT_EQ(FairShareOf(false, 3, 4, 8), 1.0);  // Nobody is in another's way.
  EXPECT_EQ(FairShareOf(false, 2, 8, 8), 1.0);
  EXPECT_EQ(FairShareOf(false, 2, 12, 8), 1.5);  // The first one has them all, the second a half.
  EXPECT_EQ(FairShareOf(false, 2, 2, 0), 2.0);
}

// Steps alone take 2 times what is predicted, beside another 8 times: 4 times as long, which is
// twice the fair share where two share the time.
TEST_F(InterferenceTest, TheSlowdownIsTimeBesideOthersByTimeAloneAndTheFairShare) {
  Steps(kTellingSteps, 2.0);
  EXPECT_DOUBLE_EQ(job_.step_time().alone_seconds(), 1.0);
  EXPECT_EQ(Slowdown(), 0.0);
  Steps(1, 8.0, Beside({"b 1"}));
  EXPECT_DOUBLE_EQ(Slowdown(), 4.0);
  Steps(1, 8.0, Beside({"b 1"}, 2.0));
  EXPECT_DOUBLE_EQ(Slowdown(), 2.0);
  Steps(1, 2.0);
  EXPECT_EQ(Slowdown(), 0.0);
}

TEST_F(InterferenceTest, ItsFirstTwentyStepsAloneTellWhatIsUsual) {
  Steps(11, 2.0);
  Steps(8, 3.0);
  EXPECT_EQ(job_.step_time().alone_seconds(), 0.0);
  Steps(1, 3.0);
  Steps(40, 100.0);
  EXPECT_DOUBLE_EQ(AloneRatioOf(job_), 2.0);
}

// In a row: amid those who come and go a few tell nothing.
TEST_F(InterferenceTest, FewerStepsAloneTellNothing) {
  for (int i = 0; i < 5; ++i) {
    Steps(kTellingSteps - 1, 2.0);
    Steps(1, 9.0, Beside({"b 1"}));
  }
  EXPECT_EQ(job_.step_time().alone_seconds(), 0.0);
}

TEST_F(InterferenceTest, WhereItNeverWasAloneNothingIsKnown) {
  Steps(100, 30.0, Beside({"b 1"}));
  EXPECT_EQ(Slowdown(), 0.0);
  EXPECT_FALSE(interference_.too_slow());
}

TEST_F(InterferenceTest, WhereItNeverWasAloneTheModelOfAMeasuredGpuTellsIt) {
  Steps(1, 3.0, Predictable(Beside({"b 1"})));
  EXPECT_DOUBLE_EQ(Slowdown(), 3.0);
  EXPECT_EQ(job_.step_time().alone_seconds(), 0.0);
}

TEST_F(InterferenceTest, FewStepsThatAreFarOffDoNotMoveIt) {
  Steps(kTellingSteps, 1.0);
  for (int i = 0; i < 40; ++i) Steps(1, i % 5 == 0 ? 90.0 : 1.2, Beside({"b 1"}));
  EXPECT_DOUBLE_EQ(Slowdown(), 1.2);
}

// For a minute, counted from the first step that is too slow.
TEST_F(InterferenceTest, ItIsTooSlowOnceThatHasLasted) {
  Steps(kTellingSteps, 1.0);
  Steps(60, 1.6, Beside({"b 1"}));
  EXPECT_FALSE(interference_.too_slow());
  Steps(1, 1.6, Beside({"b 1"}));
  EXPECT_TRUE(interference_.too_slow());
  Steps(17, 1.4, Beside({"b 1"}));  // Most of the last 32.
  EXPECT_FALSE(interference_.too_slow());
  Steps(60, 1.6, Beside({"b 1"}));
  EXPECT_FALSE(interference_.too_slow());
}

TEST_F(InterferenceTest, AFewLongStepsTellNothing) {
  Steps(kTellingSteps, 1.0);
  for (int i = 0; i < kTellingSteps - 1; ++i) {
    now_ += absl::Minutes(5);
    Steps(1, 9.0, Beside({"b 1"}));
  }
  EXPECT_FALSE(interference_.too_slow());
  Steps(1, 9.0, Beside({"b 1"}));
  EXPECT_TRUE(interference_.too_slow());
}

TEST_F(InterferenceTest, TheJobsOwnBoundIsWhatCounts) {
  job_.mutable_spec()->set_max_slowdown(2.0);
  Steps(kTellingSteps, 1.0);
  Steps(100, 2.0, Beside({"b 1"}));
  EXPECT_FALSE(interference_.too_slow());
  job_.mutable_spec()->set_max_slowdown(0.0);
  Steps(100, 90.0, Beside({"b 1"}));
  EXPECT_FALSE(interference_.too_slow());
  EXPECT_DOUBLE_EQ(Slowdown(), 90.0);  // That is told all the same.
}

// As slow alone as beside another.
TEST_F(InterferenceTest, WhatWasAsSlowAloneIsNoInterference) {
  Steps(kTellingSteps, 40.0);
  Steps(200, 42.0, Beside({"b 1"}));
  EXPECT_FALSE(interference_.too_slow());
}

TEST_F(InterferenceTest, BesideOtherNeighboursItBeginsAnew) {
  Steps(kTellingSteps, 1.0);
  Steps(60, 2.0, Beside({"b 1"}));
  Steps(60, 2.0, Beside({"b 1", "c 1"}));
  EXPECT_FALSE(interference_.too_slow());
  Steps(60, 2.0, Beside({"b 2", "c 1"}));  // Another attempt.
  EXPECT_FALSE(interference_.too_slow());
  Steps(1, 2.0, Beside({"b 2", "c 1"}));
  EXPECT_TRUE(interference_.too_slow());
}

// One loads its model, which takes much of a machine for a while.
TEST_F(InterferenceTest, BesideWhoMakesNoStepsNothingIsSeen) {
  Company loads = Beside({});
  loads.others = true;
  Steps(100, 9.0, loads);
  EXPECT_EQ(job_.step_time().alone_seconds(), 0.0);
  Steps(kTellingSteps, 1.0);
  Steps(60, 9.0, Beside({"b 1"}));
  loads.neighbours = {"b 1"};
  Steps(1, 9.0, loads);
  EXPECT_EQ(Slowdown(), 0.0);
  Steps(60, 9.0, Beside({"b 1"}));
  EXPECT_FALSE(interference_.too_slow());
}

// Slowed twice by two, it has lost as much again to each: half of one's part brings it to 1.75.
TEST_F(InterferenceTest, ItBearsThoseThatStay) {
  Steps(kTellingSteps, 1.0);
  Steps(61, 6.0, Beside({"b 1", "c 1"}, 3.0));
  ASSERT_TRUE(interference_.too_slow());
  EXPECT_EQ(interference_.bears(), INT32_MAX);
  Leaves("c 1");
  EXPECT_FALSE(interference_.too_slow());
  EXPECT_EQ(interference_.bears(), 1);
  Steps(61, 3.5, Beside({"b 1"}, 2.0));
  EXPECT_TRUE(interference_.too_slow());
  Leaves("b 1");
  EXPECT_EQ(interference_.bears(), 0);
  Steps(100, 1.0);
  EXPECT_EQ(interference_.bears(), 0);
  EXPECT_EQ(in_vain_, 0);
}

// Its steps become faster by the third that it has more of the time, and are as slow beyond that.
TEST_F(InterferenceTest, WhereADepartureGivesNoMoreThanItsShareItWasInVain) {
  Steps(kTellingSteps, 1.0);
  Steps(61, 6.0, Beside({"b 1", "c 1"}, 3.0));
  Leaves("c 1");
  Steps(kTellingSteps - 1, 4.0, Beside({"b 1"}, 2.0));
  EXPECT_EQ(in_vain_, 0);
  EXPECT_EQ(interference_.bears(), 1);
  Steps(1, 4.0, Beside({"b 1"}, 2.0));
  EXPECT_EQ(in_vain_, 1);
  EXPECT_EQ(interference_.bears(), INT32_MAX);
  Steps(100, 4.0, Beside({"b 1"}, 2.0));
  EXPECT_EQ(in_vain_, 1);
}

// Another one has come, and slows it, too.
TEST_F(InterferenceTest, BesideOthersThanWereToStayThereIsNoVerdict) {
  Steps(kTellingSteps, 1.0);
  Steps(61, 6.0, Beside({"b 1", "c 1"}, 3.0));
  Leaves("c 1");
  Steps(100, 9.0, Beside({"a 1", "b 1"}, 3.0));
  EXPECT_EQ(in_vain_, 0);
  EXPECT_EQ(interference_.bears(), 1);
  Steps(kTellingSteps, 9.0, Beside({"b 1"}, 2.0));
  EXPECT_EQ(in_vain_, 1);
}

// Its prediction was wrong, and it had never been alone: 6 times, of which 5 are usual.
TEST_F(InterferenceTest, ANeedlessDepartureIsNoticedOnceItWasAlone) {
  Steps(61, 6.0, Predictable(Beside({"b 1"})));
  ASSERT_TRUE(interference_.too_slow());
  Leaves("b 1");
  Steps(kTellingSteps - 1, 5.0, Predictable({}));
  EXPECT_EQ(interference_.bears(), 0);
  Steps(1, 5.0, Predictable({}));
  EXPECT_EQ(interference_.bears(), INT32_MAX);
  EXPECT_EQ(in_vain_, 0);  // That says nothing of other jobs.
  Steps(100, 6.0, Predictable(Beside({"b 2"})));
  EXPECT_DOUBLE_EQ(Slowdown(), 1.2);
  EXPECT_FALSE(interference_.too_slow());
}

// For an hour, and the second time for two.
TEST_F(InterferenceTest, NobodyIsKeptOffForEver) {
  EXPECT_FALSE(interference_.Lapse(now_));
  Steps(kTellingSteps, 1.0);
  for (const absl::Duration kept_off : {absl::Hours(1), absl::Hours(2), absl::Hours(4)}) {
    Steps(61, 6.0, Beside({"b 1"}));
    Leaves("b 1");
    EXPECT_EQ(interference_.keeps_off_until(), now_ + kept_off);
    Steps(kTellingSteps, 1.0);
    now_ = interference_.keeps_off_until() - absl::Seconds(1);
    EXPECT_FALSE(interference_.Lapse(now_));
    EXPECT_EQ(interference_.bears(), 0);
    now_ += absl::Seconds(1);
    EXPECT_TRUE(interference_.Lapse(now_));
    EXPECT_EQ(interference_.bears(), INT32_MAX);
    EXPECT_FALSE(interference_.Lapse(now_));
  }
}

TEST_F(InterferenceTest, ADepartureThatCannotBeStoredIsTriedAMinuteLater) {
  Steps(kTellingSteps, 1.0);
  Steps(61, 6.0, Beside({"b 1"}));
  interference_.Forget();
  Steps(60, 6.0, Beside({"b 1"}));
  EXPECT_FALSE(interference_.too_slow());
  EXPECT_EQ(interference_.bears(), INT32_MAX);
  Steps(1, 6.0, Beside({"b 1"}));
  EXPECT_TRUE(interference_.too_slow());
}

// How far predictions are off holds for the next plan; the job's row keeps it.
TEST_F(InterferenceTest, WhatItsStepsAloneToldOutlivesThePlanAndTheDaemon) {
  Steps(kTellingSteps, 2.0);
  job_.mutable_plan()->set_step_seconds(0.75);
  SetStepTime(StepRatioOf(job_), job_);
  EXPECT_DOUBLE_EQ(job_.step_time().alone_seconds(), 1.5);
  interference_ = Interference();
  Steps(1, 6.0, Beside({"b 1"}));
  EXPECT_DOUBLE_EQ(Slowdown(), 3.0);
  Steps(100, 9.0);  // That was known already.
  EXPECT_DOUBLE_EQ(AloneRatioOf(job_), 2.0);
}

TEST_F(InterferenceTest, NothingIsToldOfAJobOfAnotherUser) {
  v1::Job neighbour;
  neighbour.set_owner("uid:1");
  job_.set_owner("uid:1");
  job_.mutable_step_time()->set_slowdown(2.3456);
  EXPECT_EQ(WhyItLeaves(neighbour, job_),
            "slows a, which takes 2.35 times its fair share of time (max_slowdown is 1.5)");
  job_.set_owner("tenant:x");
  EXPECT_EQ(WhyItLeaves(neighbour, job_), "slows a job of another user more than that one allows");
}

}  // namespace
}  // namespace snug::server
