#include "server/job/job_store.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "server/job/errors.h"
#include "server/job/store_rows.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;
using v1::Job;

class JobStoreTest : public testing::Test {
 protected:
  JobStoreTest() : dir_(testing::TempDir() + "/store-" + std::to_string(getpid())) {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  ~JobStoreTest() override { fs::remove_all(dir_); }

  absl::StatusOr<std::unique_ptr<JobStore>> Open() {
    return JobStore::Open({.state_dir = dir_, .ballast_bytes = 4096});
  }
  static JobRecord NewJob(const std::string& id, int64_t order) {
    JobRecord record;
    record.order = order;
    record.job.set_id(id);
    record.job.set_state(Job::QUEUED);
    record.job.mutable_spec()->set_model("/m");
    return record;
  }
  static AttemptRecord NewAttempt(const std::string& job, int epoch) {
    AttemptRecord attempt;
    attempt.job = job;
    attempt.epoch = epoch;
    attempt.nonce = "n";
    attempt.plan.set_name("keep");
    return attempt;
  }

  const std::string dir_;
};

TEST_F(JobStoreTest, WhatWasCommittedIsLoadedAgain) {
  {
    auto store = Open().value();
    JobRecord job = NewJob("a", 7);
    job.train_data = "/d";
    job.infra_failures = 2;
    AttemptRecord attempt = NewAttempt("a", 1);
    attempt.cap_bytes = 123;
    Change change{.job = &job, .attempt = &attempt};
    change.reserve = Reservation{"cpu:0", "a", 1, 123};
    change.request = RequestRecord{"r", "hash", "a", 99};
    change.checkpoints = {{.job = "a", .step = 5, .epoch = 1, .dir = "/c"}};
    ASSERT_TRUE(store->Commit(change).ok());
  }
  auto store = Open().value();
  const StoredState state = store->Load().value();
  ASSERT_EQ(state.jobs.size(), 1u);
  EXPECT_EQ(state.jobs[0].order, 7);
  EXPECT_EQ(state.jobs[0].job.spec().model(), "/m");
  EXPECT_EQ(state.jobs[0].train_data, "/d");
  EXPECT_EQ(state.jobs[0].infra_failures, 2);
  ASSERT_EQ(state.open_attempts.size(), 1u);
  EXPECT_EQ(state.open_attempts[0].plan.name(), "keep");
  EXPECT_EQ(state.open_attempts[0].cap_bytes, 123);
  EXPECT_EQ(state.reservations.at(0).bytes, 123);
  EXPECT_EQ(state.requests.at(0).body_sha256, "hash");
  EXPECT_EQ(state.checkpoints.at(0).step, 5);
  EXPECT_EQ(store->boot_epoch(), 2);
}

// The process is killed right after Commit returned: nothing is flushed by a destructor.
TEST_F(JobStoreTest, CommittedJobSurvivesAKill) {
  const pid_t child = fork();
  if (child == 0) {
    auto store = Open().value();
    JobRecord job = NewJob("a", 1);
    _exit(store->Commit({.job = &job}).ok() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(Open().value()->Load().value().jobs.size(), 1u);
}

TEST_F(JobStoreTest, TerminalJobCannotChangeItsState) {
  auto store = Open().value();
  JobRecord job = NewJob("a", 1);
  job.job.set_state(Job::FAILED);
  ASSERT_TRUE(store->Commit({.job = &job}).ok());
  job.job.set_state(Job::QUEUED);
  EXPECT_FALSE(store->Commit({.job = &job}).ok());
  EXPECT_EQ(store->Load().value().jobs[0].state(), Job::FAILED);
}

TEST_F(JobStoreTest, SecondOpenAttemptOfAJobIsRefused) {
  auto store = Open().value();
  JobRecord job = NewJob("a", 1);
  AttemptRecord first = NewAttempt("a", 1), second = NewAttempt("a", 2);
  ASSERT_TRUE(store->Commit({.job = &job, .attempt = &first}).ok());
  EXPECT_FALSE(store->Commit({.attempt = &second}).ok());
  first.state = AttemptState::kClosed;
  ASSERT_TRUE(store->Commit({.attempt = &first}).ok());
  EXPECT_TRUE(store->Commit({.attempt = &second}).ok());
}

// The reservation of an unknown kind of row fails in the middle: the job row must not stay.
TEST_F(JobStoreTest, FailedTransactionLeavesNothing) {
  auto store = Open().value();
  JobRecord job = NewJob("a", 1);
  Change change{.job = &job};
  change.checkpoints = {{.job = "no such job", .step = 1, .epoch = 1}};
  EXPECT_FALSE(store->Commit(change).ok());
  EXPECT_TRUE(store->Load().value().jobs.empty());
}

TEST_F(JobStoreTest, EventsAreDense) {
  auto store = Open().value();
  JobRecord job = NewJob("a", 1);
  Change change{.job = &job};
  change.events = {{.job = "a", .to = Job::PREPARING}, {.job = "a", .to = Job::QUEUED}};
  ASSERT_TRUE(store->Commit(change).ok());
  change.events = {{.job = "a", .from = Job::QUEUED, .to = Job::STARTING}};
  ASSERT_TRUE(store->Commit(change).ok());
  store.reset();
  auto database = Database::Open(dir_ + "/snug.db").value();
  EXPECT_EQ(database->QueryInt("SELECT count(*) FROM events").value(), 3);
  EXPECT_EQ(database->QueryInt("SELECT max(seq) FROM events").value(), 3);
}

TEST_F(JobStoreTest, FileThatIsNoDatabaseIsNotRepaired) {
  const std::string junk(8192, 'x');
  std::ofstream(dir_ + "/snug.db") << junk;
  EXPECT_TRUE(absl::IsDataLoss(Open().status())) << Open().status();
  std::ifstream file(dir_ + "/snug.db");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), junk);
}

TEST_F(JobStoreTest, DatabaseOfAnotherProgramIsRefused) {
  Database::Open(dir_ + "/snug.db").value()->Execute("CREATE TABLE t(x)").IgnoreError();
  EXPECT_TRUE(absl::IsDataLoss(Open().status()));
}

TEST_F(JobStoreTest, NewerSchemaIsRefused) {
  Open().value().reset();
  Database::Open(dir_ + "/snug.db").value()->Execute("PRAGMA user_version=99").IgnoreError();
  EXPECT_TRUE(absl::IsFailedPrecondition(Open().status()));
}

TEST_F(JobStoreTest, SecondConnectionIsLockedOut) {
  auto store = Open().value();
  EXPECT_FALSE(Open().ok());
}

TEST_F(JobStoreTest, DamagedPageIsFoundAtTheStart) {
  {
    auto store = Open().value();
    for (int i = 1; i <= 200; ++i) {
      JobRecord job = NewJob("job-" + std::to_string(i), i);
      job.job.set_reason(std::string(200, 'r'));
      ASSERT_TRUE(store->Commit({.job = &job}).ok());
    }
  }
  std::fstream file(dir_ + "/snug.db", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096 * 8);
  file << std::string(4096, '\xff');
  file.close();
  EXPECT_TRUE(absl::IsDataLoss(Open().status())) << Open().status();
}

}  // namespace
}  // namespace snug::server
