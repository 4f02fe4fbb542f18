// What tenants have on the disk, against their quota.
#include "server/api/stored_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "server/job/errors.h"
#include "tests/server/testing/test_folder.h"
#include "tests/server/testing/tiny_model.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* kBlue = "tenant:blue";

class StoredBytesTest : public testing::Test {
 protected:
  StoredBytesTest() {
    v1::DaemonConfig config;
    config.add_tenants()->set_name("blue");
    config.mutable_tenants(0)->mutable_quota()->set_stored_bytes("1000");
    config.add_tenants()->set_name("free");
    tenants_ = Tenants::FromConfig(config).value();
  }
  StoredBytes::Count Counted() {
    return [this](const std::string& owner, const auto&) -> absl::StatusOr<int64_t> {
      ++looks_;
      EXPECT_EQ(owner, kBlue);
      return there_;
    };
  }

  Tenants tenants_;
  std::atomic<int64_t> there_ = 0;
  std::atomic<int> looks_ = 0;
};

TEST_F(StoredBytesTest, UpToTheQuotaAndNoFurther) {
  there_ = 600;
  StoredBytes stored(tenants_, Counted());
  EXPECT_TRUE(stored.Take(kBlue, 300).ok());
  EXPECT_TRUE(stored.Take(kBlue, 100).ok());
  const absl::Status refused = stored.Take(kBlue, 1);
  EXPECT_EQ(ReasonOf(refused), "QUOTA_EXCEEDED");
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_THAT(refused.message(), HasSubstr("quota.stored_bytes"));
  EXPECT_TRUE(stored.Take(kBlue, 0).ok());
  EXPECT_EQ(looks_, 1);  // What was looked at a moment ago is believed.
}

// Whoever has deleted something is believed as soon as there was time to look.
TEST_F(StoredBytesTest, WhatIsDeletedCountsNoMore) {
  there_ = 1000;
  StoredBytes stored(tenants_, Counted());
  EXPECT_FALSE(stored.Take(kBlue, 1).ok());
  there_ = 10;
  EXPECT_FALSE(stored.Take(kBlue, 1).ok());
  absl::SleepFor(absl::Milliseconds(1100));
  EXPECT_TRUE(stored.Take(kBlue, 990).ok());
  EXPECT_EQ(looks_, 2);
}

TEST_F(StoredBytesTest, WithoutAQuotaNothingIsCounted) {
  StoredBytes stored(tenants_, Counted());
  for (const char* owner : {"tenant:free", "tenant:gone", "uid:0"})
    EXPECT_TRUE(stored.Take(owner, INT64_MAX).ok());
  EXPECT_EQ(looks_, 0);
}

TEST_F(StoredBytesTest, WhatCannotBeCountedIsNotAllowed) {
  StoredBytes stored(tenants_, [](const auto&...) { return absl::UnavailableError("busy"); });
  EXPECT_TRUE(absl::IsUnavailable(stored.Take(kBlue, 1)));
}

// Of many who send at once, no more than fits.
TEST_F(StoredBytesTest, ManyAtOnceHaveOneQuota) {
  StoredBytes stored(tenants_, Counted());
  std::atomic<int> taken = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < 50; ++n) taken += stored.Take(kBlue, 5).ok() ? 1 : 0;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken, 200);
}

// A look at very many files: what the last one found holds, and nobody waits for it but for a
// moment he who began it.
TEST_F(StoredBytesTest, ALongLookHoldsNobodyUp) {
  absl::Notification go_on;
  there_ = 990;
  StoredBytes stored(tenants_, [&](const std::string&, const std::atomic<bool>& stopped) {
    if (++looks_ > 1) go_on.WaitForNotification();
    return stopped ? 0 : there_.load();
  });
  EXPECT_FALSE(stored.Take(kBlue, 100).ok());
  absl::SleepFor(absl::Milliseconds(1100));
  EXPECT_FALSE(stored.Take(kBlue, 100).ok());  // It is over the limit as far as anybody knows.
  const absl::Time begin = absl::Now();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(stored.Take(kBlue, 1).ok());
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(stored.Take(kBlue, 1).ok());
  EXPECT_LT(absl::Now() - begin, absl::Seconds(30));
  EXPECT_EQ(looks_, 2);
  there_ = 0;  // The look finds this, and ten bytes may be on top of it.
  go_on.Notify();
  absl::Status taken = absl::UnknownError("not yet");
  for (int i = 0; i < 1000 && !taken.ok(); ++i) {
    absl::SleepFor(absl::Milliseconds(5));
    taken = stored.Take(kBlue, 990);
  }
  EXPECT_TRUE(taken.ok()) << taken;
  EXPECT_FALSE(stored.Take(kBlue, 1).ok());
}

TEST(CountOnDiskTest, IsOfTheOwnersFilesAndJobs) {
  const TestFolder folder("stored");
  const std::string& dir = folder.path();
  const auto write = [&](const std::string& path, size_t bytes) {
    fs::create_directories(fs::path(dir + path).parent_path());
    WriteText(dir + path, std::string(bytes, 'x'));
  };
  write("/uploads/tenant:blue/file-1/dataset.jsonl", 100'000);
  write("/uploads/tenant:red/file-1/dataset.jsonl", 900'000);
  write("/jobs/a/checkpoints/step-000001.e1/weights", 200'000);
  write("/jobs/a/attempts/1/output/adapter", 50'000);
  write("/jobs/b/attempts/1/output/adapter", 900'000);
  JobIndex index;
  for (const auto& [id, owner] : {std::pair("a", kBlue), std::pair("b", "tenant:red")}) {
    JobRecord record;
    record.order = id[0];
    record.job.set_id(id);
    record.job.set_owner(owner);
    index.Put(record);
  }
  const Uploads uploads(dir + "/uploads");
  std::atomic<bool> stopped = false;
  const int64_t bytes = CountOnDisk(index, uploads, dir)(kBlue, stopped).value();
  EXPECT_GE(bytes, 350'000);
  EXPECT_LT(bytes, 450'000);
  EXPECT_EQ(CountOnDisk(index, uploads, dir)("tenant:none", stopped).value(), 0);
  stopped = true;
  EXPECT_TRUE(absl::IsCancelled(CountOnDisk(index, uploads, dir)(kBlue, stopped).status()));
}

}  // namespace
}  // namespace snug::server
