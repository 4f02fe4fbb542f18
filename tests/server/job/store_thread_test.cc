// How changes that wait together become batches, by a commit that only counts them.
#include "server/job/store_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "absl/synchronization/notification.h"

namespace snug::server {
namespace {

using testing::ElementsAre;

class StoreThreadTest : public testing::Test {
 protected:
  void Post(int count) {
    for (int i = 0; i < count; ++i)
      thread_->Post({.done = [this](const absl::Status& status) { done_ += status.ok(); }});
  }

  // How long a change that is there alone after a busy batch waits for others. The batch's last
  // change posts it, on the thread, so that it is there when the thread looks.
  absl::Duration WaitForOthers() {
    using Clock = std::chrono::steady_clock;
    absl::Notification landed;
    Clock::time_point posted, taken;
    const auto land = [&](const absl::Status&) {
      taken = Clock::now();
      landed.Notify();
    };
    const auto post_one = [&](const absl::Status&) {
      posted = Clock::now();
      thread_->Post({.done = land});
    };
    thread_->Post({.done = [&](const absl::Status&) {
      Post(kBusyBatch - 1);
      thread_->Post({.done = post_one});
    }});
    landed.WaitForNotification();
    return absl::FromChrono(taken - posted);
  }

  absl::Notification began_, go_on_;  // The first batch waits, so that others wait together.
  std::vector<size_t> batches_;
  int done_ = 0;
  std::unique_ptr<Database> database_ = Database::Open(":memory:").value();
  std::unique_ptr<StoreThread> thread_ = std::make_unique<StoreThread>(
      *database_, [this](const std::vector<StoreThread::Task*>& tasks) {
        batches_.push_back(tasks.size());
        if (batches_.size() == 1) {
          began_.Notify();
          go_on_.WaitForNotification();
        }
        return std::vector<absl::Status>(tasks.size());
      });
};

TEST_F(StoreThreadTest, WhatWaitsTogetherIsCommittedTogether) {
  Post(1);
  began_.WaitForNotification();
  Post(600);
  go_on_.Notify();
  thread_.reset();  // After all that was posted.
  EXPECT_THAT(batches_, ElementsAre(1, kMaxBatch, kMaxBatch, 600 - 2 * kMaxBatch));
  EXPECT_EQ(done_, 601);
}

// Others are waited for after a busy batch, but not for ever: a change that comes alone lands too.
TEST_F(StoreThreadTest, WhatComesAloneAfterABusyBatchLands) {
  Post(1);
  began_.WaitForNotification();
  Post(kBusyBatch);
  go_on_.Notify();
  EXPECT_TRUE(thread_->PostAndWait({}).ok());
  EXPECT_TRUE(thread_->PostAndWait({}).ok());
  thread_.reset();
  EXPECT_EQ(done_, 1 + static_cast<int>(kBusyBatch));
}

// The shortest of many waits counts: a busy machine makes some longer, and none shorter.
TEST_F(StoreThreadTest, OthersAreWaitedForAMillisecond) {
  go_on_.Notify();
  absl::Duration shortest = absl::InfiniteDuration();
  for (int i = 0; i < 100; ++i) shortest = std::min(shortest, WaitForOthers());
  EXPECT_GE(shortest, kWaitForMore / 2);
  EXPECT_LT(shortest, absl::Milliseconds(20));
  EXPECT_EQ(kWaitForMore, absl::Milliseconds(1));
}

}  // namespace
}  // namespace snug::server
