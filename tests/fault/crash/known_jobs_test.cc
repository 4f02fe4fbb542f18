// What the crash harness says of a daemon's word, for each way in which that can be wrong.
#include "tests/fault/crash/known_jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace snug::crash {
namespace {

using testing::ElementsAre;
using v1::Job;

Job Shown(const std::string& id, int64_t token, JobState state) {
  Job job;
  job.set_id(id);
  job.set_display_name(absl::StrCat("steps=1 token=", token));
  job.set_state(state);
  return job;
}

class KnownJobsTest : public testing::Test {
 protected:
  // A request that was sent, and acknowledged if `id` is not empty.
  void Send(const std::string& id) {
    const auto submit = jobs_.Next(100, [](int64_t, bool) { return v1::CreateJobRequest(); });
    const Job made = Shown(id, submit->token, Job::STATE_QUEUED);
    jobs_.Answered(submit->token, id.empty() ? nullptr : &made, /*lost=*/id.empty());
  }

  std::vector<Wrong> Compared(const std::vector<Job>& shown) {
    jobs_.Compare(shown);
    std::vector<Wrong> kinds;
    for (const Violation& violation : jobs_.TakeViolations()) kinds.push_back(violation.kind);
    return kinds;
  }

  KnownJobs jobs_;
};

TEST_F(KnownJobsTest, AnAcknowledgedJobThatIsNotThereIsLost) {
  Send("a");
  EXPECT_THAT(Compared({Shown("a", 1, Job::STATE_RUNNING)}), ElementsAre());
  EXPECT_THAT(Compared({}), ElementsAre(Wrong::kLost));
}

TEST_F(KnownJobsTest, WhatNobodyHasAnsweredForMayBeThereOrNot) {
  Send("");
  EXPECT_EQ(jobs_.Unacknowledged(), 1);
  EXPECT_THAT(Compared({}), ElementsAre());
  EXPECT_THAT(Compared({Shown("a", 1, Job::STATE_QUEUED)}), ElementsAre());
  Send("a");  // The same request once more.
  EXPECT_EQ(jobs_.Unacknowledged(), 0);
  EXPECT_EQ(jobs_.tokens(), 1);
}

TEST_F(KnownJobsTest, WhatIsRefusedIsAnsweredForAndSentAgain) {
  const auto make = [](int64_t, bool) { return v1::CreateJobRequest(); };
  const auto submit = jobs_.Next(100, make);
  EXPECT_EQ(jobs_.Unacknowledged(), 1);
  jobs_.Answered(submit->token, nullptr, /*lost=*/false);
  EXPECT_EQ(jobs_.Unacknowledged(), 0);
  EXPECT_EQ(jobs_.Next(100, make)->token, submit->token);
}

TEST_F(KnownJobsTest, TwoJobsOfOneRequestAreDoubled) {
  Send("");
  EXPECT_THAT(Compared({Shown("a", 1, Job::STATE_QUEUED), Shown("b", 1, Job::STATE_QUEUED)}),
              ElementsAre(Wrong::kDoubled));
}

TEST_F(KnownJobsTest, AnEndStays) {
  Send("a");
  EXPECT_THAT(Compared({Shown("a", 1, Job::STATE_SUCCEEDED)}), ElementsAre());
  EXPECT_THAT(jobs_.Ended(), ElementsAre("a"));
  EXPECT_THAT(Compared({Shown("a", 1, Job::STATE_RUNNING)}), ElementsAre(Wrong::kOther));
}

TEST_F(KnownJobsTest, WhatWasNeverAskedForIsWrongAndSoIsAnotherId) {
  EXPECT_THAT(Compared({Shown("a", 7, Job::STATE_QUEUED)}), ElementsAre(Wrong::kOther));
  Send("b");
  EXPECT_THAT(Compared({Shown("c", 1, Job::STATE_QUEUED)}), ElementsAre(Wrong::kOther));
}

TEST_F(KnownJobsTest, ADeletedJobStaysAwayAndOneThatWasToBeDeletedMayBeThere) {
  Send("a");
  const Job ended = Shown("a", 1, Job::STATE_CANCELLED);
  const Wish wish{1, "a", Order::kDelete};
  jobs_.Changed(wish, nullptr, /*lost=*/true);
  EXPECT_THAT(Compared({ended}), ElementsAre());
  jobs_.Changed(wish, &ended, /*lost=*/false);
  EXPECT_THAT(Compared({ended}), ElementsAre(Wrong::kOther));
  EXPECT_THAT(Compared({}), ElementsAre());
}

// A change that was asked for before its end may be answered behind it.
TEST_F(KnownJobsTest, AnOldAnswerIsNoViolation) {
  Send("a");
  const Job ended = Shown("a", 1, Job::STATE_CANCELLED), before = Shown("a", 1, Job::STATE_PAUSED);
  jobs_.Changed({1, "a", Order::kCancel}, &ended, false);
  jobs_.Changed({1, "a", Order::kPause}, &before, false);
  EXPECT_THAT(jobs_.TakeViolations(), testing::IsEmpty());
  EXPECT_THAT(Compared({ended}), ElementsAre());
}

// Most lives are to have an attempt that runs: two jobs are left in peace, until they have to wait.
TEST_F(KnownJobsTest, TwoJobsAreSteadyAndNobodyChangesThem) {
  std::vector<bool> steady;
  const auto send = [&](const std::string& id) {
    const auto submit = jobs_.Next(100, [&](int64_t, bool is) {
      steady.push_back(is);
      return v1::CreateJobRequest();
    });
    const Job made = Shown(id, submit->token, Job::STATE_RUNNING);
    jobs_.Answered(submit->token, &made, /*lost=*/false);
  };
  for (const char* id : {"a", "b", "c", "d"}) send(id);
  EXPECT_THAT(steady, ElementsAre(false, true, true, false));
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    const std::optional<Wish> wish = jobs_.Change(random);
    EXPECT_THAT(wish ? wish->id : "a", testing::AnyOf("a", "d"));
  }
  EXPECT_THAT(Compared({Shown("a", 1, Job::STATE_RUNNING), Shown("b", 2, Job::STATE_QUEUED),
                        Shown("c", 3, Job::STATE_RUNNING), Shown("d", 4, Job::STATE_RUNNING)}),
              ElementsAre());
  send("e");
  EXPECT_TRUE(steady.back());
}

}  // namespace
}  // namespace snug::crash
