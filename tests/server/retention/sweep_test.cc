// What goes of ended jobs, as a walk over rows: newest first, as the store gives them.
#include "server/retention/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "server/retention/leavings.h"
#include "tests/server/testing/test_folder.h"

namespace snug::server {
namespace {

using testing::HasSubstr;
using v1::Job;

Job Ended(const std::string& id) {
  Job job;
  job.set_id(id);
  job.set_state(Job::STATE_SUCCEEDED);
  return job;
}

Leavings Bytes(int64_t all, int64_t checkpoints = 0, int64_t logs = 0) {
  return {.all_bytes = all,
          .has_checkpoints = checkpoints > 0,
          .checkpoint_bytes = checkpoints,
          .has_logs = logs > 0,
          .log_bytes = logs};
}

TEST(SweepTest, WithoutLimitsEverythingStays) {
  Sweep sweep{RetentionLimits()};
  for (int i = 0; i < 1000; ++i)
    EXPECT_FALSE(sweep.Judge(Ended(absl::StrCat(i)), absl::Hours(24 * 3650), Bytes(1LL << 40, 1, 1))
                     .anything());
}

TEST(SweepTest, TheNewestStayUpToTheCount) {
  Sweep sweep({.jobs = {.count = 2}});
  EXPECT_FALSE(sweep.Judge(Ended("c"), {}, {}).job);
  EXPECT_FALSE(sweep.Judge(Ended("b"), {}, {}).job);
  EXPECT_TRUE(sweep.Judge(Ended("a"), {}, {}).job);
}

TEST(SweepTest, TheAgeIsAJobsOwn) {
  Sweep sweep({.checkpoints = {.age = absl::Hours(1)}});
  EXPECT_TRUE(sweep.Judge(Ended("b"), absl::Hours(2), Bytes(9, 5)).checkpoints);
  EXPECT_FALSE(sweep.Judge(Ended("a"), absl::Minutes(60), Bytes(9, 5)).checkpoints);
}

// One that does not fit goes, and takes no room from those behind it.
TEST(SweepTest, BytesAreThoseThatFitBesideNewerOnes) {
  Sweep sweep({.logs = {.bytes = 10}});
  EXPECT_FALSE(sweep.Judge(Ended("d"), {}, Bytes(9, 0, 6)).logs);
  EXPECT_TRUE(sweep.Judge(Ended("c"), {}, Bytes(9, 0, 5)).logs);
  EXPECT_FALSE(sweep.Judge(Ended("b"), {}, Bytes(9, 0, 4)).logs);
  EXPECT_TRUE(sweep.Judge(Ended("a"), {}, Bytes(9, 0, 1)).logs);
}

// Of jobs without checkpoints none are counted; those of a job that goes are not counted either.
TEST(SweepTest, OnlyWhatIsThereIsCounted) {
  Sweep sweep({.jobs = {.age = absl::Hours(1)}, .checkpoints = {.count = 1}});
  EXPECT_FALSE(sweep.Judge(Ended("d"), {}, Bytes(9)).anything());
  EXPECT_TRUE(sweep.Judge(Ended("c"), absl::Hours(2), Bytes(9, 5)).job);
  EXPECT_FALSE(sweep.Judge(Ended("b"), {}, Bytes(9, 5)).anything());
  EXPECT_TRUE(sweep.Judge(Ended("a"), {}, Bytes(9, 5)).checkpoints);
}

TEST(SweepTest, ALiveJobLosesNothingAndIsNotCounted) {
  Sweep sweep({.jobs = {.count = 1}});
  for (const Job::State state : {Job::STATE_QUEUED, Job::STATE_RUNNING, Job::STATE_PAUSED}) {
    Job job = Ended("live");
    job.set_state(state);
    EXPECT_FALSE(sweep.Judge(job, absl::Hours(1000), Bytes(9, 5, 5)).anything());
  }
  EXPECT_FALSE(sweep.Judge(Ended("b"), {}, {}).job);
  EXPECT_TRUE(sweep.Judge(Ended("a"), {}, {}).job);
}

// In each of the ways in which a job refers to an older one, live or ended.
TEST(SweepTest, WhatAnotherJobRefersToStays) {
  for (const Job::State state : {Job::STATE_QUEUED, Job::STATE_SUCCEEDED})
    for (int way = 0; way < 3; ++way) {
      Sweep sweep({.jobs = {.age = absl::Hours(1)}, .checkpoints = {.age = absl::Hours(1)}});
      Job newer = Ended("newer");
      newer.set_state(state);
      if (way == 0) newer.set_parent_job("old");
      if (way == 1) newer.mutable_spec()->set_model("old");
      if (way == 2) newer.mutable_spec()->mutable_lora()->set_init_adapter("old");
      EXPECT_FALSE(sweep.Judge(newer, {}, {}).anything());
      EXPECT_FALSE(sweep.Judge(Ended("old"), absl::Hours(2), Bytes(9, 5)).anything()) << way;
      EXPECT_TRUE(sweep.Judge(Ended("older"), absl::Hours(2), Bytes(9, 5)).job);
      EXPECT_EQ(sweep.held(), 1);
    }
}

// A chain goes from its newest job on: what goes refers to nothing any more.
TEST(SweepTest, AReferenceOfAJobThatGoesHoldsNothing) {
  Sweep sweep({.jobs = {.age = absl::Hours(1)}});
  Job child = Ended("child");
  child.set_parent_job("parent");
  EXPECT_TRUE(sweep.Judge(child, absl::Hours(2), {}).job);
  EXPECT_TRUE(sweep.Judge(Ended("parent"), absl::Hours(2), {}).job);
}

TEST(RetentionLimitsTest, AreReadAndRefusedByName) {
  v1::RetentionConfig config;
  EXPECT_FALSE(RetentionLimitsOf(config)->any());
  config.mutable_jobs()->set_count(3);
  config.mutable_checkpoints()->set_age("90m");
  config.mutable_logs()->set_bytes("2GiB");
  config.mutable_files()->set_count(7);
  config.mutable_datasets()->set_count(9);
  config.mutable_datasets()->set_bytes("5GiB");
  config.set_sweep_seconds(5);
  const RetentionLimits limits = RetentionLimitsOf(config).value();
  EXPECT_EQ(limits.jobs.count, 3);
  EXPECT_EQ(limits.jobs.age, absl::InfiniteDuration());
  EXPECT_EQ(limits.checkpoints.age, absl::Minutes(90));
  EXPECT_EQ(limits.logs.bytes, int64_t{2} << 30);
  EXPECT_EQ(limits.files.count, 7);
  EXPECT_EQ(limits.datasets.count, 9);
  EXPECT_EQ(limits.datasets.bytes, int64_t{5} << 30);
  EXPECT_EQ(limits.between_sweeps, absl::Seconds(5));
  EXPECT_TRUE(RetentionLimits{.files = limits.files}.any());
  for (const char* age : {"3w", "d", "-1d", "0s", "1.5h", "99999999999d"}) {
    config.mutable_logs()->set_age(age);
    EXPECT_THAT(RetentionLimitsOf(config).status().message(),
                HasSubstr(absl::StrCat("retention.logs.age: \"", age, "\"")));
  }
  config.clear_logs();
  config.mutable_jobs()->set_count(-1);
  EXPECT_THAT(RetentionLimitsOf(config).status().message(),
              HasSubstr("retention.jobs.count: -1 is below 0"));
  config.mutable_jobs()->set_count(0);
  config.mutable_jobs()->set_bytes("much");
  EXPECT_THAT(RetentionLimitsOf(config).status().message(), HasSubstr("retention.jobs.bytes: "));
  config.clear_jobs();
  config.set_sweep_seconds(-4);
  EXPECT_THAT(RetentionLimitsOf(config).status().message(),
              HasSubstr("retention.sweep_seconds: -4 is outside 0"));
}

class LeavingsTest : public testing::Test {
 protected:
  LeavingsTest() {
    Write("attempts/1/worker.log");
    Write("attempts/1/worker.log.1");
    Write("attempts/1/metrics.jsonl");
    Write("attempts/1/events.out.tfevents.snug");
    Write("attempts/1/exit.json");
    Write("attempts/2/output/metrics.jsonl");
    Write("checkpoints/step-000005.e1/weights");
  }

  std::filesystem::path PathOf(const std::string& name) const { return state_ + "/jobs/a/" + name; }
  void Write(const std::string& name) const {
    std::filesystem::create_directories(PathOf(name).parent_path());
    std::ofstream(PathOf(name)) << std::string(9000, '.');
  }

  const TestFolder folder_{"leavings"};
  const std::string state_ = folder_.path();
};

TEST_F(LeavingsTest, AreTheBytesThatTheDiskGetsBack) {
  const Leavings found = LeavingsOf(state_, "a");
  EXPECT_TRUE(found.has_checkpoints);
  EXPECT_TRUE(found.has_logs);
  EXPECT_GE(found.checkpoint_bytes, 9000);
  EXPECT_GE(found.log_bytes, 3 * 9000);
  EXPECT_GE(found.all_bytes, found.checkpoint_bytes + found.log_bytes + 2 * 9000);
  const Leavings none = LeavingsOf(state_, "b");
  EXPECT_FALSE(none.has_checkpoints || none.has_logs);
  EXPECT_EQ(none.all_bytes, 0);
}

TEST_F(LeavingsTest, LogsGoAndTheOutputsOwnStay) {
  RemoveLogs(state_, "a");
  EXPECT_FALSE(LeavingsOf(state_, "a").has_logs);
  for (const char* stays : {"attempts/1/exit.json", "attempts/2/output/metrics.jsonl",
                            "checkpoints/step-000005.e1/weights"})
    EXPECT_TRUE(std::filesystem::exists(PathOf(stays))) << stays;
}

}  // namespace
}  // namespace snug::server
