// Which jobs are alike, and whom a piece of work answers for.
#include "server/scheduler/like_jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace snug::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

JobRecord Job(const std::string& id, const std::function<void(JobRecord&)>& change = nullptr) {
  JobRecord record;
  record.job.set_id(id);
  record.job.set_owner("alice");
  v1::JobSpec& spec = *record.job.mutable_spec();
  spec.set_display_name(id + "'s name");
  spec.set_model("/models/tiny");
  spec.set_dataset("/data/train.jsonl");
  if (change) change(record);
  return record;
}

TEST(AlikeKeyTest, NamesMakeNoDifferenceAndAllElseDoes) {
  const std::string key = AlikeKey(Job("a"));
  EXPECT_EQ(key, AlikeKey(Job("b")));
  const std::vector<std::function<void(JobRecord&)>> changes = {
      [](JobRecord& record) { record.job.set_owner("bob"); },
      [](JobRecord& record) { record.job.set_priority(1); },
      [](JobRecord& record) { record.job.mutable_spec()->set_model("/models/small"); },
      [](JobRecord& record) { record.job.mutable_spec()->set_dataset("/data/others.jsonl"); },
      [](JobRecord& record) { (*record.job.mutable_spec()->mutable_labels())["team"] = "x"; },
      [](JobRecord& record) { record.job.mutable_spec()->mutable_training()->set_seed(7); },
  };
  for (const auto& change : changes) EXPECT_NE(key, AlikeKey(Job("b", change)));
}

TEST(AlikeKeyTest, WhatGoesOnBehindACheckpointIsLikeNoOther) {
  const std::vector<std::function<void(JobRecord&)>> behind = {
      [](JobRecord& record) { record.train_data = "/state/datasets/x"; },
      [](JobRecord& record) { record.job.set_epoch(1); },
      [](JobRecord& record) { record.job.set_extends_step(10); },
  };
  for (const auto& change : behind)
    EXPECT_NE(AlikeKey(Job("a", change)), AlikeKey(Job("b", change)));
}

std::vector<std::string> Ids(const std::vector<LikeJobs::Member>& members) {
  std::vector<std::string> ids;
  for (const LikeJobs::Member& member : members) ids.push_back(member.job);
  return ids;
}

TEST(LikeJobsTest, OneBeginsForAllThatAskedBefore) {
  LikeJobs jobs;
  EXPECT_TRUE(jobs.Add("x", {.job = "x1"}));
  EXPECT_TRUE(jobs.Add("y", {.job = "y1"}));
  EXPECT_FALSE(jobs.Add("x", {.job = "x2"}));
  EXPECT_THAT(Ids(jobs.Take("x")), ElementsAre("x1", "x2"));
  // Its files may have changed since the work began.
  EXPECT_TRUE(jobs.Add("x", {.job = "x3"}));
  EXPECT_THAT(Ids(jobs.Take("x")), ElementsAre("x3"));
  EXPECT_THAT(Ids(jobs.Take("y")), ElementsAre("y1"));
}

TEST(LikeJobsTest, NobodyIsAnsweredTwice) {
  LikeJobs jobs;
  jobs.Add("x", {.job = "x1"});
  jobs.Take("x");
  EXPECT_THAT(jobs.Take("x"), IsEmpty());
}

}  // namespace
}  // namespace snug::server
