// How changes that wait together become batches, by a commit that only counts them.
#include "server/job/store_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace snug::server
