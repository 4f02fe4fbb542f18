// Whose turn it is, with work that waits until the test lets it go on.
#include "server/scheduler/fair_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"

namespace snug::server {
namespace {

using testing::ElementsAre;

// So that a thread which nobody wakes is asleep.
constexpr absl::Duration kUntilIdle = absl::Milliseconds(50);

class FairPoolTest : public testing::Test {
 protected:
  // Keeps a thread busy until Release().
  void Block(FairPool& pool, FairWork work = {}) {
    auto begun = std::make_shared<absl::Notification>();
    work.run = [this, begun] {
      begun->Notify();
      released_.WaitForNotification();
    };
    ASSERT_TRUE(pool.Post(std::move(work)));
    begun->WaitForNotification();
  }
  void Release() { released_.Notify(); }
  // Work that notes its name.
  FairWork Note(const std::string& user, const std::string& name, FairWork work = {}) {
    work.user = user;
    work.run = [this, name] {
      absl::MutexLock lock(&mutex_);
      order_.push_back(name);
    };
    return work;
  }
  std::vector<std::string> Await(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto all = [&] { return order_.size() >= count; };
    mutex_.AwaitWithTimeout(absl::Condition(&all), absl::Seconds(30));
    return order_;
  }

  absl::Notification released_;
  absl::Mutex mutex_;
  std::vector<std::string> order_;
};

// F-60: one user has many waiting, another comes later with one.
TEST_F(FairPoolTest, UsersTakeTurns) {
  FairPool pool({.any = 1});
  Block(pool);
  for (const char* name : {"a1", "a2", "a3"}) ASSERT_TRUE(pool.Post(Note("a", name)));
  for (const char* name : {"b1", "b2"}) ASSERT_TRUE(pool.Post(Note("b", name)));
  Release();
  EXPECT_THAT(Await(5), ElementsAre("a1", "b1", "a2", "b2", "a3"));
}

TEST_F(FairPoolTest, AUsersOwnGoByPriorityThenArrival) {
  FairPool pool({.any = 1});
  Block(pool);
  ASSERT_TRUE(pool.Post(Note("a", "first")));
  ASSERT_TRUE(pool.Post(Note("a", "second")));
  ASSERT_TRUE(pool.Post(Note("a", "urgent", {.priority = 5})));
  Release();
  EXPECT_THAT(Await(3), ElementsAre("urgent", "first", "second"));
}

// The thread for all is busy with a large one, and more of these wait.
TEST_F(FairPoolTest, SmallWorkHasAThreadOfItsOwn) {
  FairPool pool({.any = 1, .small = 1});
  Block(pool);
  ASSERT_TRUE(pool.Post(Note("a", "large")));
  ASSERT_TRUE(pool.Post(Note("a", "small", {.small = true})));
  EXPECT_THAT(Await(1), ElementsAre("small"));
  Release();
  EXPECT_THAT(Await(2), ElementsAre("small", "large"));
}

// It takes its thread for longer than small work may: the next one is not held up by it.
TEST_F(FairPoolTest, SmallWorkThatIsNotDoneBeforeLongIsLarge) {
  FairPool pool({.any = 1, .small = 1});
  Block(pool);
  FairWork endless = Note("a", "large after all", {.small = true});
  endless.run_briefly = [] { return false; };
  ASSERT_TRUE(pool.Post(std::move(endless)));
  ASSERT_TRUE(pool.Post(Note("b", "small", {.small = true})));
  EXPECT_THAT(Await(1), ElementsAre("small"));
  EXPECT_EQ(pool.WaitingOf("a"), 1);
  Release();
  EXPECT_THAT(Await(2), ElementsAre("small", "large after all"));
  EXPECT_EQ(pool.WaitingOf("a"), 0);
}

TEST_F(FairPoolTest, WhatWaitsBehindSmallWorkThatIsNotDoneGoesOn) {
  absl::Notification posted;
  FairPool pool({.any = 1, .small = 1});
  Block(pool);
  FairWork endless = Note("a", "large after all", {.key = "x", .small = true});
  endless.run_briefly = [&] {
    posted.WaitForNotification();
    return false;
  };
  ASSERT_TRUE(pool.Post(std::move(endless)));
  ASSERT_TRUE(pool.Post(Note("b", "small", {.key = "x", .small = true})));
  posted.Notify();
  EXPECT_THAT(Await(1), ElementsAre("small"));
  Release();
  EXPECT_THAT(Await(2), ElementsAre("small", "large after all"));
}

// It is small work, and the thread for all has time for it.
TEST_F(FairPoolTest, TheThreadForAllEndsWhatItBegins) {
  FairPool pool({.any = 1});
  FairWork work = Note("a", "whole", {.small = true});
  work.run_briefly = [] { return false; };
  ASSERT_TRUE(pool.Post(std::move(work)));
  EXPECT_THAT(Await(1), ElementsAre("whole"));
}

// The second finds what the first has made.
TEST_F(FairPoolTest, WorkOfOneKeyIsNeverDoneTwiceAtOnce) {
  FairPool pool({.any = 2});
  Block(pool, {.key = "x"});
  ASSERT_TRUE(pool.Post(Note("a", "same", {.key = "x"})));
  ASSERT_TRUE(pool.Post(Note("a", "other", {.key = "y"})));
  EXPECT_THAT(Await(1), ElementsAre("other"));
  Release();
  EXPECT_THAT(Await(2), ElementsAre("other", "same"));
}

// One after the other, by priority and arrival, whoever's it is; it counts as waiting meanwhile.
TEST_F(FairPoolTest, WhatWaitsBehindAKeyGoesInOrder) {
  FairPool pool({.any = 2});
  Block(pool, {.user = "a", .key = "x"});
  ASSERT_TRUE(pool.Post(Note("a", "first", {.key = "x"})));
  ASSERT_TRUE(pool.Post(Note("b", "second", {.key = "x"})));
  ASSERT_TRUE(pool.Post(Note("a", "urgent", {.key = "x", .priority = 5})));
  EXPECT_EQ(pool.WaitingOf("a"), 2);
  EXPECT_EQ(pool.WaitingOf("b"), 1);
  EXPECT_EQ(pool.WaitingOf("c"), 0);
  Release();
  EXPECT_THAT(Await(3), ElementsAre("urgent", "first", "second"));
  EXPECT_EQ(pool.WaitingOf("a"), 0);
}

// The thread for all goes on with a large one that is older.
TEST_F(FairPoolTest, WhatAKeyLetsGoOnIsTakenByAThreadThatIsIdle) {
  absl::Notification large_may_end;
  FairPool pool({.any = 1, .small = 1});
  Block(pool, {.key = "x"});
  ASSERT_TRUE(pool.Post({.run = [&] { large_may_end.WaitForNotification(); }}));
  ASSERT_TRUE(pool.Post(Note("", "small", {.key = "x", .small = true})));
  absl::SleepFor(kUntilIdle);
  Release();
  EXPECT_THAT(Await(1), ElementsAre("small"));
  large_may_end.Notify();
}

// It waited behind small work, whose thread takes no other.
TEST_F(FairPoolTest, LargeWorkThatAKeyLetsGoOnWakesTheThreadForAll) {
  absl::Notification large_may_end;
  FairPool pool({.any = 1, .small = 1});
  ASSERT_TRUE(pool.Post({.run = [&] { large_may_end.WaitForNotification(); }}));
  Block(pool, {.key = "x", .small = true});
  ASSERT_TRUE(pool.Post(Note("a", "large", {.key = "x"})));
  large_may_end.Notify();
  absl::SleepFor(kUntilIdle);
  Release();
  EXPECT_THAT(Await(1), ElementsAre("large"));
}

// The key's work is taken from the queue while another of that key runs, and comes back.
TEST_F(FairPoolTest, WorkThatWasThereBeforeItsKeyRanIsNotLost) {
  FairPool pool({.any = 1});
  Block(pool);
  for (const char* name : {"1", "2", "3"}) ASSERT_TRUE(pool.Post(Note("a", name, {.key = "x"})));
  ASSERT_TRUE(pool.Post(Note("b", "small", {.key = "x", .small = true})));
  Release();
  EXPECT_THAT(Await(4), testing::UnorderedElementsAre("1", "2", "3", "small"));
  EXPECT_EQ(pool.WaitingOf("a"), 0);
}

TEST_F(FairPoolTest, ALimitIsKept) {
  FairPool pool({.any = 1, .waiting = 2});
  Block(pool);
  ASSERT_TRUE(pool.Post(Note("a", "1")));
  ASSERT_TRUE(pool.Post(Note("a", "2")));
  EXPECT_FALSE(pool.Post(Note("a", "too many")));
  Release();
  EXPECT_THAT(Await(2), ElementsAre("1", "2"));
  pool.Stop();
  EXPECT_FALSE(pool.Post(Note("a", "late")));
  EXPECT_THAT(order_, ElementsAre("1", "2"));
}

}  // namespace
}  // namespace snug::server
