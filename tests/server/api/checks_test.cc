// When what a job's files say is found, by whom it is heard, and that nobody waits for it
// meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/server/api/service_fixture.h"

namespace snug::server {
namespace {

using ChecksTest = ServiceTest;

// A submit does not wait for files to be read: what is wrong with them is the job's own error, the
// very one that validate_only gives.
TEST_F(ChecksTest, WhatTheFilesSayFailsAJobThatWasNotValidated) {
  v1::CreateJobRequest modules = Request(""), budget = Request(""), config = Request(""),
                       rows = Request("");
  modules.mutable_spec()->mutable_lora()->add_target_modules("qqq_proj");
  budget.mutable_spec()->mutable_memory()->set_budget("1MiB");
  fs::create_directories(dir_ + "/deep");
  WriteText(dir_ + "/deep/config.json", std::string(1 << 20, '['));
  config.mutable_spec()->set_model(dir_ + "/deep");
  WriteText(dir_ + "/pairs.jsonl", R"({"prompt": "a", "chosen": "b", "rejected": "c"})"
                                   "\n");
  rows.mutable_spec()->set_dataset(dir_ + "/pairs.jsonl");
  for (const v1::CreateJobRequest& request : {modules, budget, config, rows}) {
    v1::Job job;
    const grpc::Status refused = Validate(request, &job);
    ASSERT_FALSE(refused.ok());
    ASSERT_TRUE(Create(request, &job).ok());
    EXPECT_EQ(job.state(), v1::Job::STATE_PREPARING);
    const v1::Job ended = Watch(job.id()).back();
    EXPECT_EQ(ended.state(), v1::Job::STATE_FAILED);
    EXPECT_EQ(ended.epoch(), 0);
    EXPECT_EQ(ended.error().reason(), ReasonOf(refused));
    if (refused.error_code() != grpc::StatusCode::INVALID_ARGUMENT) continue;
    const auto bad = DetailOf<google::rpc::BadRequest>(refused);
    EXPECT_EQ(ended.error().field(), bad.field_violations(0).field());
    EXPECT_EQ(ended.error().message(), bad.field_violations(0).description());
  }
}

// As it was given first; once it is checked, with all that was not.
TEST_F(ChecksTest, TheSpecOfAJobIsFilledInWhenItIsChecked) {
  v1::Job job;
  ASSERT_TRUE(Create(Request("steps=1"), &job).ok());
  EXPECT_EQ(job.reason(), "waits to be prepared");
  EXPECT_FALSE(job.spec().lora().has_r());
  EXPECT_EQ(Watch(job.id()).back().spec().lora().r(), 16);
}

// Four files of 8 GiB, each of which takes seconds to be read: submits, plans of others and a small
// dataset do not wait for them, and they are let go of when their jobs are cancelled.
TEST_F(ChecksTest, LargeDatasetsHoldUpNobody) {
  std::vector<std::string> large;
  for (int i = 0; i < 4; ++i) {
    v1::CreateJobRequest request = Request("steps=1");
    const std::string path = absl::StrCat(dir_, "/large-", i, ".jsonl");
    WriteText(path, "{}\n");
    fs::resize_file(path, uint64_t{8} << 30);
    request.mutable_spec()->set_dataset(path);
    v1::Job job;
    const absl::Time start = absl::Now();
    ASSERT_TRUE(Create(request, &job).ok());
    EXPECT_LT(absl::Now() - start, absl::Seconds(2));
    large.push_back(job.id());
  }
  v1::Job small;
  ASSERT_TRUE(Create(Request("steps=2"), &small).ok());
  EXPECT_EQ(Watch(small.id()).back().state(), v1::Job::STATE_SUCCEEDED);
  std::set<std::string> reasons;
  for (const std::string& id : large) {
    const v1::Job job = Get(id);
    EXPECT_EQ(job.state(), v1::Job::STATE_PREPARING) << job.reason();
    reasons.insert(job.reason().substr(0, 26));
    grpc::ClientContext context;
    v1::CancelJobRequest request;
    request.set_id(id);
    v1::Job cancelled;
    EXPECT_TRUE(stub_->CancelJob(&context, request, &cancelled).ok());
    EXPECT_EQ(cancelled.state(), v1::Job::STATE_CANCELLED);
  }
  EXPECT_TRUE(reasons.contains("waits to be prepared"));
  // A large one that is right comes next: the thread that read the others is free again.
  WriteTinyDataset(dir_ + "/many.jsonl", 20, 30);
  fs::resize_file(dir_ + "/many.jsonl", uint64_t{65} << 20);  // Zeros behind the rows: no JSON.
  v1::CreateJobRequest request = Request("steps=1");
  request.mutable_spec()->set_dataset(dir_ + "/many.jsonl");
  v1::Job job;
  ASSERT_TRUE(Create(request, &job).ok());
  EXPECT_EQ(Watch(job.id()).back().state(), v1::Job::STATE_FAILED);
  for (int i = 0; i < 4; ++i) fs::remove(absl::StrCat(dir_, "/large-", i, ".jsonl"));
}

}  // namespace
}  // namespace snug::server
