// update, rerun, extend, delete, list with filters, backup, doctor against a server that answers as
// told.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fake_server.h"

namespace snug::client {
namespace {

using ::testing::HasSubstr;

class ChangeTest : public ::testing::Test {
 protected:
  FakeServer server_;
};

TEST_F(ChangeTest, UpdateSaysWhatIsToChange) {
  v1::UpdateJobRequest asked;
  server_.update = [&](const v1::UpdateJobRequest& request, v1::Job* reply) {
    asked = request;
    reply->set_id("job-1");
    return grpc::Status::OK;
  };
  const Ran ran = server_.Run({"update", "job", "priority=-3", "labels.team=red=1", "labels.old="});
  EXPECT_EQ(ran.out, "job-1 is changed\n") << ran.err;
  EXPECT_EQ(asked.id(), "job");
  EXPECT_EQ(asked.priority(), -3);
  EXPECT_EQ(asked.labels().at("team"), "red=1");
  EXPECT_THAT(asked.remove_labels(), ::testing::ElementsAre("old"));
  for (const char* wrong : {"priority=x", "labels.=x", "labels.a", "nope=1"}) {
    const Ran refused = server_.Run({"update", "job", wrong});
    EXPECT_EQ(refused.code, 1) << wrong;
    EXPECT_THAT(refused.err, HasSubstr("write priority=N, labels.KEY=VALUE")) << wrong;
  }
}

TEST_F(ChangeTest, RerunPrintsTheNewIds) {
  std::vector<std::string> request_ids;
  server_.rerun = [&](const v1::RerunJobRequest& request, v1::Job* reply) {
    request_ids.push_back(request.request_id());
    reply->set_id(request.id() + "-again");
    return grpc::Status::OK;
  };
  EXPECT_EQ(server_.Run({"rerun", "a", "b"}).out, "a-again\nb-again\n");
  ASSERT_EQ(request_ids.size(), 2u);
  EXPECT_NE(request_ids[0], request_ids[1]);
}

TEST_F(ChangeTest, ExtendSaysByHowMuchAndPrintsTheNewId) {
  v1::ExtendJobRequest asked;
  server_.extend = [&](const v1::ExtendJobRequest& request, v1::Job* reply) {
    asked = request;
    reply->set_id("more");
    return grpc::Status::OK;
  };
  EXPECT_EQ(server_.Run({"extend", "a", "--steps", "20"}).out, "more\n");
  EXPECT_EQ(asked.id(), "a");
  EXPECT_EQ(asked.steps(), 20);
  EXPECT_FALSE(asked.request_id().empty());
  EXPECT_EQ(server_.Run({"extend", "a"}).code, 64);
  EXPECT_EQ(server_.Run({"extend", "a", "--steps", "0"}).code, 64);
}

// One that is refused does not keep the others; each refusal is said.
TEST_F(ChangeTest, DeleteGoesOnBehindOneThatIsRefused) {
  server_.remove = [](const v1::DeleteJobRequest& request, v1::Job* reply) {
    reply->set_id(request.id());
    return request.id().size() > 1
               ? grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, request.id() + " runs")
               : grpc::Status::OK;
  };
  const Ran ran = server_.Run({"delete", "a", "b1", "c", "d1", "e"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_EQ(ran.out, "a is deleted\nc is deleted\ne is deleted\n");
  EXPECT_EQ(ran.err, "snug: d1 runs\nsnug: b1 runs\n");  // The first is the command's own error.
}

TEST_F(ChangeTest, RerunGoesOnBehindOneThatIsRefused) {
  server_.rerun = [](const v1::RerunJobRequest& request, v1::Job* reply) {
    reply->set_id(request.id() + "-again");
    return request.id() == "no" ? grpc::Status(grpc::StatusCode::NOT_FOUND, "no job no")
                                : grpc::Status::OK;
  };
  const Ran ran = server_.Run({"rerun", "a", "no", "b"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_EQ(ran.out, "a-again\nb-again\n");
  EXPECT_EQ(ran.err, "snug: no job no\n");
}

TEST_F(ChangeTest, ListAsksForWhatItShows) {
  v1::ListJobsRequest asked;
  server_.list = [&](const v1::ListJobsRequest& request, v1::ListJobsResponse* reply) {
    asked = request;
    for (const int priority : {1, 3, 2}) {
      v1::Job& job = *reply->add_jobs();
      job.set_id("p" + std::to_string(priority));
      job.set_priority(priority);
    }
    return grpc::Status::OK;
  };
  const Ran ran = server_.Run({"list", "--state", "failed", "--label", "team=red", "--name", "n",
                               "--limit", "2", "--sort", "priority"});
  EXPECT_THAT(ran.out, ::testing::ContainsRegex("p3[^\n]*\np2")) << ran.err;
  EXPECT_THAT(ran.out, ::testing::Not(HasSubstr("p1")));
  EXPECT_THAT(asked.states(), ::testing::ElementsAre(v1::Job::STATE_FAILED));
  EXPECT_EQ(asked.labels().at("team"), "red");
  EXPECT_EQ(asked.display_name(), "n");
  EXPECT_EQ(server_.Run({"list", "--label", "team"}).code, 1);
  EXPECT_EQ(server_.Run({"list", "--state", "nope"}).code, 64);
}

TEST_F(ChangeTest, BackupIsWholeOrNotThere) {
  bool whole = true;
  server_.backup = [&](const v1::BackupStoreRequest&, grpc::ServerWriter<v1::FileChunk>* writer) {
    v1::FileChunk chunk;
    chunk.set_path("snug.db");
    chunk.set_file_bytes(6);
    chunk.set_content("abc");
    writer->Write(chunk);
    chunk.clear_path();
    if (whole) writer->Write(chunk);
    return grpc::Status::OK;
  };
  const std::string file = server_.folder().path("copy.db");
  EXPECT_EQ(server_.Run({"backup", file}).code, 0);
  EXPECT_EQ(ReadFile(file), "abcabc");
  EXPECT_EQ(server_.Run({"backup", file}).code, 1);  // Nothing is overwritten.
  EXPECT_EQ(ReadFile(file), "abcabc");
  whole = false;
  const std::string other = server_.folder().path("half.db");
  EXPECT_THAT(server_.Run({"backup", other}).err, HasSubstr("has ended at 3 of 6 bytes"));
  EXPECT_EQ(ReadFile(other), "");
}

TEST_F(ChangeTest, DoctorEndsWithOneWhenSomethingIsWrong) {
  bool well = true;
  server_.check = [&](const v1::CheckStoreRequest&, v1::CheckStoreResponse* reply) {
    reply->add_checks("spec_sha256");
    reply->set_jobs(2);
    if (well) return grpc::Status::OK;
    auto& finding = *reply->add_findings();
    finding.set_check("spec_sha256");
    finding.set_subject("job-1");
    finding.set_message("is damaged");
    return grpc::Status::OK;
  };
  EXPECT_EQ(server_.Run({"doctor"}).out, "1 checks of 2 jobs and 0 events: all is well\n");
  well = false;
  const Ran ran = server_.Run({"doctor"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.out, HasSubstr("spec_sha256: job-1: is damaged\n"));
}

}  // namespace
}  // namespace snug::client
