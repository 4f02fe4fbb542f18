// A store in a folder of the test's own.
#ifndef TESTS_SERVER_JOB_STORE_FIXTURE_H_
#define TESTS_SERVER_JOB_STORE_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>

#include "absl/synchronization/notification.h"
#include "server/job/errors.h"
#include "server/job/job_store.h"
#include "tests/server/testing/test_folder.h"

namespace snug::server {

namespace fs = std::filesystem;
using v1::Job;

class JobStoreTest : public testing::Test {
 protected:
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
  // A job that a request makes.
  static absl::Status CreateJob(JobStore& store, const JobRecord& job,
                                const RequestRecord& request) {
    auto made = std::make_shared<NewJob>();
    made->record = job;
    made->event = {.job = job.key(), .to = job.state()};
    made->request = request;
    absl::Notification done;
    absl::Status result;
    store.Create(made, [&](const std::shared_ptr<NewJob>&, const absl::Status& status) {
      result = status;
      done.Notify();
    });
    done.WaitForNotification();
    return result;
  }
  // What the store knows of a request at that time, as it tells whoever makes a job of one.
  static std::optional<RequestRecord> KnownRequest(JobStore& store, const std::string& id,
                                                   int64_t now_us) {
    auto job = std::make_shared<NewJob>();
    job->event.wall_us = now_us;
    job->request = RequestRecord{id, "", "", 0};
    job->refusal = absl::UnavailableError("it is only looked up");
    absl::Notification done;
    store.Create(job, [&](const std::shared_ptr<NewJob>&, const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      done.Notify();
    });
    done.WaitForNotification();
    return job->known;
  }

  const TestFolder folder_{"store"};
  const std::string dir_ = folder_.path();
};

}  // namespace snug::server

#endif  // TESTS_SERVER_JOB_STORE_FIXTURE_H_
