// list, get, cancel, logs against a server that answers as told.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fake_server.h"

namespace snug::client {
namespace {

using ::testing::HasSubstr;

v1::Job Job(const std::string& id, v1::Job::State state) {
  v1::Job job;
  job.set_id(id);
  job.set_display_name("name of " + id);
  job.set_state(state);
  return job;
}

class QueryTest : public ::testing::Test {
 protected:
  FakeServer server_;
};

// Three pages: the list is complete all the same.
TEST_F(QueryTest, ListFollowsPages) {
  server_.list = [](const v1::ListJobsRequest& request, v1::ListJobsResponse* reply) {
    const int page = request.page_token().empty() ? 0 : std::stoi(request.page_token());
    *reply->add_jobs() = Job("job-" + std::to_string(page), v1::Job::STATE_RUNNING);
    if (request.all())
      *reply->add_jobs() = Job("old-" + std::to_string(page), v1::Job::STATE_FAILED);
    if (page < 2) reply->set_next_page_token(std::to_string(page + 1));
    return grpc::Status::OK;
  };
  auto json = nlohmann::json::parse(server_.Run({"list", "--output", "json"}).out);
  ASSERT_EQ(json["jobs"].size(), 3u);
  EXPECT_EQ(json["jobs"][2]["id"], "job-2");
  json = nlohmann::json::parse(server_.Run({"list", "--all", "--output", "json"}).out);
  EXPECT_EQ(json["jobs"].size(), 6u);
  EXPECT_EQ(json["jobs"][5]["state"], "FAILED");
  EXPECT_THAT(server_.Run({"list"}).out, HasSubstr("job-2  name of job-2  RUNNING"));
}

TEST_F(QueryTest, AnEmptyListSaysSo) {
  server_.list = [](const v1::ListJobsRequest&, v1::ListJobsResponse*) { return grpc::Status::OK; };
  EXPECT_EQ(server_.Run({"list"}).out, "no jobs that have not ended; snug list --all shows all\n");
  EXPECT_EQ(server_.Run({"list", "--all"}).out, "no jobs\n");
  EXPECT_EQ(server_.Run({"list", "--output", "json"}).out, "{\n  \"jobs\": []\n}\n");
}

TEST_F(QueryTest, GetShowsWhyAJobWaits) {
  server_.get = [](const v1::GetJobRequest& request, v1::Job* reply) {
    *reply = Job(request.id() + "-in-full", v1::Job::STATE_QUEUED);
    reply->set_reason("waits for cpu:0");
    return grpc::Status::OK;
  };
  const Ran ran = server_.Run({"get", "abc"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(ran.out,
            "job        abc-in-full\nname       name of abc-in-full\n"
            "state      QUEUED: waits for cpu:0\n");
  const auto json = nlohmann::json::parse(server_.Run({"get", "abc", "--output", "json"}).out);
  EXPECT_EQ(json["state"], "QUEUED");
  EXPECT_EQ(json["reason"], "waits for cpu:0");
}

TEST_F(QueryTest, WhatTheDaemonRefusesIsSaidAndEndsWithOne) {
  server_.get = [](const v1::GetJobRequest& request, v1::Job*) {
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "no job begins with " + request.id());
  };
  const Ran ran = server_.Run({"get", "nope"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(ran.err, "snug: no job begins with nope\n");
}

TEST_F(QueryTest, CancelPrintsTheStateItLedTo) {
  server_.cancel = [](const v1::CancelJobRequest& request, v1::Job* reply) {
    *reply = Job(request.id(), v1::Job::STATE_CANCELLING);
    return grpc::Status::OK;
  };
  EXPECT_EQ(server_.Run({"cancel", "abc"}).out, "abc CANCELLING\n");
  const auto json = nlohmann::json::parse(server_.Run({"cancel", "abc", "-o", "json"}).out);
  EXPECT_EQ(json["state"], "CANCELLING");
}

TEST_F(QueryTest, CancelSaysWhetherToKeep) {
  std::vector<bool> keeps;
  server_.cancel = [&](const v1::CancelJobRequest& request, v1::Job* reply) {
    keeps.push_back(request.keep());
    *reply = Job(request.id(), v1::Job::STATE_CANCELLING);
    return grpc::Status::OK;
  };
  server_.Run({"cancel", "a", "b", "--keep"});
  server_.Run({"cancel", "a"});
  EXPECT_EQ(keeps, (std::vector<bool>{true, true, false}));
}

// One that cannot be cancelled does not keep the others.
TEST_F(QueryTest, CancelTakesSeveral) {
  server_.cancel = [](const v1::CancelJobRequest& request, v1::Job* reply) {
    if (request.id() == "no") return grpc::Status(grpc::StatusCode::NOT_FOUND, "no job no");
    *reply = Job(request.id(), v1::Job::STATE_CANCELLED);
    return grpc::Status::OK;
  };
  const Ran ran = server_.Run({"cancel", "a", "no", "b"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_EQ(ran.out, "a CANCELLED\nb CANCELLED\n");
  EXPECT_EQ(ran.err, "snug: no job no\n");
}

TEST_F(QueryTest, PauseAndResumePrintTheStateTheyLedTo) {
  server_.pause = [](const v1::PauseJobRequest& request, v1::Job* reply) {
    *reply =
        Job(request.id(), request.id() == "a" ? v1::Job::STATE_PAUSING : v1::Job::STATE_PAUSED);
    return grpc::Status::OK;
  };
  server_.resume = [](const v1::ResumeJobRequest& request, v1::Job* reply) {
    *reply = Job(request.id(), v1::Job::STATE_QUEUED);
    return grpc::Status::OK;
  };
  EXPECT_EQ(server_.Run({"pause", "a", "b"}).out, "a PAUSING\nb PAUSED\n");
  EXPECT_EQ(server_.Run({"resume", "a"}).out, "a QUEUED\n");
}

// With what the job has been told; a job that has less already is told nothing.
TEST_F(QueryTest, SqueezeAndRelaxPrintThePlans) {
  const auto job = [](const std::string& id) {
    v1::Job job = Job(id, v1::Job::STATE_RUNNING);
    job.mutable_memory()->set_plan("keep");
    job.mutable_memory()->set_budget_bytes(3 << 20);
    return job;
  };
  server_.squeeze = [&](const v1::SqueezeJobRequest& request, v1::Job* reply) {
    *reply = job(request.id());
    v1::PlanOrder& order = *reply->mutable_plan_changes()->mutable_pending();
    order.mutable_plan()->set_name("recompute 2 of 2");
    order.set_bytes(request.bytes());
    return grpc::Status::OK;
  };
  server_.relax = [&](const v1::RelaxJobRequest& request, v1::Job* reply) {
    *reply = job(request.id());
    return grpc::Status::OK;
  };
  EXPECT_EQ(server_.Run({"squeeze", "a", "2MiB"}).out,
            "a keep, 3 MiB -> recompute 2 of 2, 2 MiB\n");
  EXPECT_EQ(server_.Run({"relax", "b"}).out, "b keep, 3 MiB\n");
  EXPECT_EQ(server_.Run({"squeeze", "a", "much"}).code, 64);
}

TEST_F(QueryTest, LogsArePrintedByteForByte) {
  server_.logs = [](const v1::GetJobLogsRequest& request,
                    grpc::ServerWriter<v1::LogChunk>* writer) {
    v1::LogChunk chunk;
    chunk.set_text(request.follow() ? "following\n" : "first\nsec");
    writer->Write(chunk);
    chunk.set_text("ond\n");
    writer->Write(chunk);
    return grpc::Status::OK;
  };
  EXPECT_EQ(server_.Run({"logs", "abc"}).out, "first\nsecond\n");
  EXPECT_THAT(server_.Run({"logs", "abc", "--follow"}).out, HasSubstr("following"));
  EXPECT_THAT(server_.Run({"logs", "abc", "-f"}).out, HasSubstr("following"));
  EXPECT_EQ(server_.Run({"logs", "abc", "-o", "json"}).out,
            "{\"log\":\"first\\nsec\"}\n{\"log\":\"ond\\n\"}\n");
}

// The stream breaks in the middle of a word and starts from the beginning again.
TEST_F(QueryTest, LogsGoOnWhereTheyBroke) {
  int streams = 0;
  server_.logs = [&](const v1::GetJobLogsRequest&, grpc::ServerWriter<v1::LogChunk>* writer) {
    v1::LogChunk chunk;
    chunk.set_text(++streams == 1 ? "one tw" : "one two three");
    writer->Write(chunk);
    return streams == 1 ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "draining")
                        : grpc::Status::OK;
  };
  EXPECT_EQ(server_.Run({"logs", "abc", "--follow"}).out, "one two three");
}

}  // namespace
}  // namespace snug::client
