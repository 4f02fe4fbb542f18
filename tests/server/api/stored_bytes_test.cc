// What tenants have on the disk, against their quota.
#include "server/api/stored_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "server/job/errors.h"
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
    return [this](const std::string& owner) -> absl::StatusOr<int64_t> {
      ++looks_;
      EXPECT_EQ(owner, kBlue);
      return there_;
    };
  }

  Tenants tenants_;
  int64_t there_ = 0;
  int looks_ = 0;
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
  StoredBytes stored(tenants_, [](const std::string&) { return absl::UnavailableError("busy"); });
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

TEST(CountOnDiskTest, IsOfTheOwnersFilesAndJobs) {
  const std::string dir = testing::TempDir() + "/stored-" + std::to_string(getpid());
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
  const int64_t bytes = CountOnDisk(index, uploads, dir)(kBlue).value();
  EXPECT_GE(bytes, 350'000);
  EXPECT_LT(bytes, 450'000);
  EXPECT_EQ(CountOnDisk(index, uploads, dir)("tenant:none").value(), 0);
  fs::remove_all(dir);
}

}  // namespace
}  // namespace snug::server
