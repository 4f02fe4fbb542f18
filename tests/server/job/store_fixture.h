// A store in a folder of the test's own.
#ifndef TESTS_SERVER_JOB_STORE_FIXTURE_H_
#define TESTS_SERVER_JOB_STORE_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "server/job/errors.h"
#include "server/job/job_store.h"

namespace snug::server {

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
  // The store of a daemon of another version: a dump beside the tests.
  void MakeFromDump(const std::string& name) {
    std::ifstream file(std::string(std::getenv("SNUG_SOURCE_DIR")) + "/tests/server/job/" + name);
    const std::string dump(std::istreambuf_iterator<char>(file), {});
    ASSERT_TRUE(Database::Open(dir_ + "/snug.db").value()->Execute(dump).ok());
  }
  static JobRecord AJob(const std::string& id, int64_t order) {
    JobRecord record;
    record.order = order;
    record.job.set_id(id);
    record.job.set_state(Job::STATE_QUEUED);
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

}  // namespace snug::server

#endif  // TESTS_SERVER_JOB_STORE_FIXTURE_H_
