// What is done about an attempt, by the signs of it and the time.
#include "server/scheduler/attempt_care.h"

#include <gtest/gtest.h>

#include <string>

#include "server/metrics/metrics.h"

namespace snug::server {
namespace {

using Stage = AttemptEnd::Stage;

class AttemptCareTest : public testing::Test {
 protected:
  Care At(absl::Duration after) { return CareFor(signs_, kBegin + after, limits_, end_); }
  // Of which nothing follows.
  void ExpectNothing(const Care& care) {
    EXPECT_FALSE(care.tell || care.term || care.kill || care.kill_shim || care.gone || care.close ||
                 care.unreachable || care.fault != nullptr);
  }
  void ExpectEnds(const char* fault) {
    const Care care = At(absl::ZeroDuration());
    ASSERT_NE(care.fault, nullptr);
    EXPECT_EQ(std::string(care.fault), fault);
    EXPECT_TRUE(care.tell);
    EXPECT_EQ(At(absl::Seconds(1)).fault, nullptr);  // Said and counted once.
  }

  static constexpr absl::Duration kBegin = absl::Seconds(5000);
  const SchedulerLimits limits_;
  AttemptSigns signs_ = {.linked = true, .greeted = true};
  AttemptEnd end_;
};

TEST_F(AttemptCareTest, OneThatIsWellIsLeftAlone) {
  ExpectNothing(At(absl::Hours(1)));
  EXPECT_EQ(end_.stage, Stage::kRuns);
}

// Each alone is enough.
TEST_F(AttemptCareTest, FaultsEndIt) {
  signs_.bad_messages = limits_.max_bad_messages;
  ExpectEnds(kBadMessages);
  end_ = {};
  signs_ = {.linked = true, .greeted = true, .hangs = true};
  ExpectEnds(kHung);
  end_ = {};
  signs_ = {.linked = true, .greeted = true};
  signs_.silent = limits_.stuck_after + absl::Seconds(1);
  ExpectEnds(kSilent);
  end_ = {};
  signs_ = {};
  signs_.age = limits_.hello_timeout + absl::Seconds(1);
  ExpectEnds(kNoHello);
}

// Nor does one without Hello hang by its pace, of which there is none.
TEST_F(AttemptCareTest, AtItsLimitsNothingIsDoneYet) {
  signs_.bad_messages = limits_.max_bad_messages - 1;
  signs_.silent = limits_.stale_after;
  ExpectNothing(At(absl::ZeroDuration()));
  signs_ = {.hangs = true};
  signs_.age = limits_.hello_timeout;
  ExpectNothing(At(absl::ZeroDuration()));
}

TEST_F(AttemptCareTest, SilenceIsShownBeforeItEndsAnything) {
  signs_.silent = limits_.stale_after + absl::Seconds(1);
  const Care care = At(absl::ZeroDuration());
  EXPECT_TRUE(care.unreachable);
  EXPECT_FALSE(care.tell);
}

TEST_F(AttemptCareTest, ACancelledOneIsToldThenSignalledThenKilled) {
  signs_.cancelled = true;
  Care care = At(absl::ZeroDuration());
  EXPECT_TRUE(care.tell);
  EXPECT_FALSE(care.term);
  EXPECT_EQ(care.fault, nullptr);
  ExpectNothing(At(limits_.cancel_term - absl::Seconds(1)));
  care = At(limits_.cancel_term);
  EXPECT_TRUE(care.term);
  EXPECT_FALSE(care.tell || care.kill);
  ExpectNothing(At(limits_.cancel_kill - absl::Seconds(1)));
  care = At(limits_.cancel_kill);
  EXPECT_TRUE(care.kill);
  EXPECT_FALSE(care.term || care.kill_shim);
  EXPECT_TRUE(At(limits_.cancel_kill + limits_.shim_grace).kill_shim);
}

// Nobody hears a request that goes nowhere.
TEST_F(AttemptCareTest, WithoutALinkItIsSignalledAtOnce) {
  signs_.cancelled = true;
  signs_.linked = false;
  const Care care = At(absl::ZeroDuration());
  EXPECT_TRUE(care.tell);
  EXPECT_TRUE(care.term);
  ExpectNothing(At(absl::Seconds(1)));
}

TEST_F(AttemptCareTest, OneAtFaultIsSignalledAtOnceAndKilledLater) {
  signs_.hangs = true;
  EXPECT_TRUE(At(absl::ZeroDuration()).term);
  ExpectNothing(At(limits_.kill_grace - absl::Seconds(1)));
  EXPECT_TRUE(At(limits_.kill_grace).kill);
}

// It was told to stop: a step that it still makes is no reason to let it stay half ended.
TEST_F(AttemptCareTest, WhatHasBegunToEndIsEnded) {
  signs_.hangs = true;
  At(absl::ZeroDuration());
  signs_.hangs = false;
  EXPECT_TRUE(At(limits_.kill_grace).kill);
}

TEST_F(AttemptCareTest, OneThatIsGoneIsClosed) {
  signs_.liveness = Liveness::kGone;
  Care care = At(absl::ZeroDuration());
  EXPECT_TRUE(care.gone);
  EXPECT_TRUE(care.close);
  end_.stage = Stage::kClosing;
  ExpectNothing(At(absl::Seconds(1)));
  // What it left could not be read: again, but not at once.
  end_.stage = Stage::kGone;
  end_.close_again = kBegin + absl::Seconds(3);
  ExpectNothing(At(absl::Seconds(2)));
  care = At(absl::Seconds(3));
  EXPECT_TRUE(care.close);
  EXPECT_FALSE(care.gone);
}

// Not even of one that should have ended long ago.
TEST_F(AttemptCareTest, NothingFollowsFromNotKnowing) {
  signs_ = {.liveness = Liveness::kUnknown, .cancelled = true, .hangs = true};
  ExpectNothing(At(absl::ZeroDuration()));
  EXPECT_EQ(end_.stage, Stage::kRuns);
}

}  // namespace
}  // namespace snug::server
