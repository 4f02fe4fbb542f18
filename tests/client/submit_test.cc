#include <atomic>
#include <iostream>
#include <set>
#include <sstream>
#include <thread>

#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/support/error_details.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fake_server.h"

namespace snug::client {
namespace {

using ::testing::MatchesRegex;

// As the daemon refuses a job for one field of it.
grpc::Status Refusal() {
  google::rpc::Status details;
  details.set_code(3);
  details.set_message("the job has a bad field");
  google::rpc::ErrorInfo info;
  info.set_reason("INVALID_FIELD");
  details.add_details()->PackFrom(info);
  google::rpc::BadRequest bad;
  bad.add_field_violations()->set_field("spec.training.max_steps");
  bad.mutable_field_violations(0)->set_description("must not be negative, is -5");
  details.add_details()->PackFrom(bad);
  grpc::Status status;
  EXPECT_TRUE(grpc::SetErrorDetails(details, &status).ok());
  return status;
}

// Standard input holds the text for as long as this lives.
class Typed {
 public:
  explicit Typed(const std::string& text) : text_(text), before_(std::cin.rdbuf(text_.rdbuf())) {}
  ~Typed() { std::cin.rdbuf(before_); }

 private:
  std::istringstream text_;
  std::streambuf* before_;
};

class SubmitTest : public ::testing::Test {
 protected:
  SubmitTest() {
    file_ = server_.folder().Write("my-job.yaml", "model: ./m\ndataset: ./d\nmethod: full\n");
    server_.create = [this](const v1::CreateJobRequest& request, v1::Job* reply) {
      (request.validate_only() ? checks_ : requests_).push_back(request);
      reply->set_id("abc");
      reply->set_display_name(request.spec().display_name());
      reply->set_state(v1::Job::STATE_PREPARING);
      return grpc::Status::OK;
    };
  }

  FakeServer server_;
  std::vector<v1::CreateJobRequest> requests_, checks_;
  std::string file_;
};

TEST_F(SubmitTest, PrintsTheIdAlone) {
  const Ran ran = server_.Run({"submit", file_, "training.max_steps=5"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out, "abc\n");
  EXPECT_EQ(ran.err, "");
  ASSERT_EQ(requests_.size(), 1u);
  EXPECT_EQ(requests_[0].spec().model(), server_.folder().path("m"));
  EXPECT_EQ(requests_[0].spec().display_name(), "my-job");
  EXPECT_EQ(requests_[0].spec().training().max_steps(), 5);
}

// The daemon reads the model's files first, and makes no job meanwhile.
TEST_F(SubmitTest, AsksFirstWhatTheFilesSay) {
  server_.Run({"submit", file_});
  ASSERT_EQ(checks_.size(), 1u);
  EXPECT_EQ(checks_[0].spec().SerializeAsString(), requests_[0].spec().SerializeAsString());
  EXPECT_EQ(checks_[0].request_id(), "");
  server_.Run({"submit", file_, "--no-check"});
  EXPECT_EQ(checks_.size(), 1u);
  EXPECT_EQ(requests_.size(), 2u);
}

// There was no room to check it: that is done when it is prepared.
TEST_F(SubmitTest, IsHandedInUncheckedWhereTheDaemonIsTooBusy) {
  const auto answer = server_.create;
  server_.create = [&](const v1::CreateJobRequest& request, v1::Job* reply) {
    const grpc::Status status = answer(request, reply);
    return request.validate_only() ? grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "busy")
                                   : status;
  };
  EXPECT_EQ(server_.Run({"submit", file_}).out, "abc\n");
}

TEST_F(SubmitTest, JsonIsTheJob) {
  const auto json = nlohmann::json::parse(server_.Run({"submit", file_, "--output", "json"}).out);
  EXPECT_EQ(json["id"], "abc");
  EXPECT_EQ(json["state"], "PREPARING");
  EXPECT_EQ(json["error"], nlohmann::json::object());
}

TEST_F(SubmitTest, EverySubmitHasAUuidOfItsOwn) {
  server_.Run({"submit", file_});
  server_.Run({"submit", file_});
  ASSERT_EQ(requests_.size(), 2u);
  EXPECT_NE(requests_[0].request_id(), requests_[1].request_id());
  for (const auto& request : requests_) {
    EXPECT_THAT(
        request.request_id(),
        MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
  }
}

// The reply is lost with the daemon: the call is made again, and it is the same request.
TEST_F(SubmitTest, TriesAgainWithTheSameRequestId) {
  const auto answer = server_.create;
  server_.create = [&](const v1::CreateJobRequest& request, v1::Job* reply) {
    const grpc::Status status = answer(request, reply);
    if (request.validate_only()) return status;
    return requests_.size() < 3 ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone") : status;
  };
  EXPECT_EQ(server_.Run({"submit", file_}).out, "abc\n");
  ASSERT_EQ(requests_.size(), 3u);
  EXPECT_EQ(requests_[0].SerializeAsString(), requests_[2].SerializeAsString());
}

// A refusal is final.
TEST_F(SubmitTest, RefusalsAreNotTriedAgain) {
  int calls = 0;
  server_.create = [&](const v1::CreateJobRequest&, v1::Job*) {
    ++calls;
    return Refusal();
  };
  const Ran ran = server_.Run({"submit", file_, "training.max_steps=-5"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(ran.err,
            "snug: the job has a bad field (INVALID_FIELD)\n"
            "  training.max_steps: must not be negative, is -5\n");
}

// The line is that of the job file, whatever the file is called, and also where it is no file.
TEST_F(SubmitTest, ARefusedFieldHasItsLineInEveryJobFile) {
  server_.create = [](const v1::CreateJobRequest&, v1::Job*) { return Refusal(); };
  server_.plan = [](const v1::PlanJobRequest&, v1::PlanJobResponse*) { return Refusal(); };
  server_.preview = [](const v1::PreviewDatasetRequest&, v1::PreviewDatasetResponse*) {
    return Refusal();
  };
  const std::string text =
      "{\n\"model\": \"./m\", \"dataset\": \"./d\", \"method\": \"full\",\n"
      "\"training\": {\n\t\"seed\": 1,\n\t\"max_steps\": -5}\n}\n";
  const auto error = [&](std::vector<std::string> words) {
    const Typed typed(text);
    words.insert(words.end(), {"-o", "json"});
    const Ran ran = server_.Run(words);
    EXPECT_EQ(ran.code, 1);
    return nlohmann::json::parse(ran.err)["error"];
  };
  const auto expected = nlohmann::json::parse(R"({
    "reason": "INVALID_FIELD", "message": "the job has a bad field",
    "field": "training.max_steps", "line": 5,
    "fields": [{"field": "training.max_steps", "line": 5,
                "message": "must not be negative, is -5"}]})");
  for (const char* name : {"bad.json", "bad", "bad.txt", "bad.yaml", "bad.yml"}) {
    const std::string file = server_.folder().Write(name, text);
    EXPECT_EQ(error({"submit", file}), expected) << file;
    EXPECT_EQ(error({"plan", file}), expected) << file;
  }
  EXPECT_EQ(error({"submit", "-"}), expected);
  EXPECT_EQ(error({"plan", "-"}), expected);
  EXPECT_EQ(error({"datasets", "preview", server_.folder().path("bad.yml")}), expected);
}

// What the command line says has no line.
TEST_F(SubmitTest, ARefusedOverrideHasNoLine) {
  server_.create = [](const v1::CreateJobRequest&, v1::Job*) { return Refusal(); };
  const Typed typed("{\"model\": \"/m\", \"training\": {\"max_steps\": 5}}");
  const Ran ran = server_.Run({"submit", "-", "training.max_steps=-5", "-o", "json"});
  const auto error = nlohmann::json::parse(ran.err)["error"];
  EXPECT_EQ(error["field"], "training.max_steps");
  EXPECT_FALSE(error.contains("line"));
}

TEST_F(SubmitTest, WithWatchItEndsAsTheJobDoes) {
  server_.watch = [](const v1::WatchJobRequest& request, grpc::ServerWriter<v1::Job>* writer) {
    v1::Job job;
    job.set_id(request.id());
    job.set_state(v1::Job::STATE_CANCELLED);
    writer->Write(job);
    return grpc::Status::OK;
  };
  const Ran ran = server_.Run({"submit", file_, "--watch"});
  EXPECT_EQ(ran.code, 2);
  EXPECT_EQ(ran.out, "abc\nCANCELLED\n");
  const Ran json = server_.Run({"submit", file_, "--watch", "-o", "json"});
  EXPECT_EQ(nlohmann::json::parse(json.out)["state"], "CANCELLED");
}

}  // namespace
}  // namespace snug::client
