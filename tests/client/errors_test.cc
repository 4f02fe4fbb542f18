#include "client/errors.h"

#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/support/error_details.h"
#include "gtest/gtest.h"
#include "proto/snug/yaml_node.h"

namespace snug::client {
namespace {

class ErrorsTest : public ::testing::Test {
 protected:
  std::string Text(int code, const std::string& message) {
    details_.set_code(code);
    details_.set_message(message);
    grpc::Status status;
    EXPECT_TRUE(grpc::SetErrorDetails(details_, &status).ok());
    return std::string(ToStatus(status).message());
  }

  template <class Detail>
  void Add(const Detail& detail) {
    details_.add_details()->PackFrom(detail);
  }

  google::rpc::Status details_;
};

// Two fields are wrong at once: each on a line of its own, by its path in the job file.
TEST_F(ErrorsTest, BadFieldsAreLinesWithThePathOfTheFile) {
  google::rpc::ErrorInfo info;
  info.set_reason("INVALID_SPEC");
  google::rpc::BadRequest bad;
  auto* first = bad.add_field_violations();
  first->set_field("spec.training.max_steps");
  first->set_description("must be at least 1, not -5");
  auto* second = bad.add_field_violations();
  second->set_field("job.spec.lora.r");
  second->set_description("must be at most 512, not 9999");
  Add(info);
  Add(bad);
  EXPECT_EQ(Text(3, "the job has 2 bad fields"),
            "the job has 2 bad fields (INVALID_SPEC)\n"
            "  training.max_steps: must be at least 1, not -5\n"
            "  lora.r: must be at most 512, not 9999");
}

// For a script: the reason, every field, the daemon's message as it is.
TEST_F(ErrorsTest, TheSameErrorAsJson) {
  google::rpc::ErrorInfo info;
  info.set_reason("BAD_FIELD");
  google::rpc::BadRequest bad;
  bad.add_field_violations()->set_field("spec.lora.r");
  bad.mutable_field_violations(0)->set_description("9999 is outside 1 to 4096");
  Add(info);
  Add(bad);
  details_.set_code(3);
  details_.set_message("spec.lora.r: 9999 is outside 1 to 4096");
  grpc::Status status;
  ASSERT_TRUE(grpc::SetErrorDetails(details_, &status).ok());
  EXPECT_EQ(ErrorToJson(ToStatus(status)), Json::parse(R"({"error": {
    "reason": "BAD_FIELD", "message": "spec.lora.r: 9999 is outside 1 to 4096", "field": "lora.r",
    "fields": [{"field": "lora.r", "message": "9999 is outside 1 to 4096"}]}})"));
  EXPECT_EQ(ErrorToJson(absl::NotFoundError("no file x")), Json::parse(R"({"error": {
    "reason": "NOT_FOUND", "message": "no file x", "field": ""}})"));
}

// With its line, where the job file has it.
TEST_F(ErrorsTest, TheLineOfAFieldThatTheDaemonRefuses) {
  google::rpc::BadRequest bad;
  for (const char* field : {"spec.lora.r", "spec.model"}) {
    bad.add_field_violations()->set_field(field);
    bad.mutable_field_violations(bad.field_violations_size() - 1)->set_description("wrong");
  }
  Add(bad);
  details_.set_code(3);
  grpc::Status status;
  ASSERT_TRUE(grpc::SetErrorDetails(details_, &status).ok());
  const Json error = ErrorToJson(ToStatus(status), [](const std::string& field) {
    return field == "lora.r" ? 7 : 0;
  })["error"];
  EXPECT_EQ(error["line"], 7);
  EXPECT_EQ(error["fields"], Json::parse(R"([{"field": "lora.r", "line": 7, "message": "wrong"},
                                             {"field": "model", "message": "wrong"}])"));
}

// Of a job file, for an editor: each with its field and its line.
TEST_F(ErrorsTest, ErrorsOfAJobFileAsJson) {
  const absl::Status status =
      YamlStatus("job.yaml", {{.line = 3, .field = "training.lr", .message = "late"},
                              {.line = 1, .field = "modle", .message = "unknown key"}});
  EXPECT_EQ(ErrorToJson(status), Json::parse(R"({"error": {
    "reason": "BAD_JOB_FILE", "message": "job.yaml:1: unknown key\njob.yaml:3: late",
    "field": "modle", "line": 1,
    "fields": [{"field": "modle", "line": 1, "message": "unknown key"},
               {"field": "training.lr", "line": 3, "message": "late"}]}})"));
}

// A reason and no words: the code's words are said, to people and to scripts.
TEST_F(ErrorsTest, AnErrorWithoutAMessageIsSaidByItsCode) {
  google::rpc::ErrorInfo info;
  info.set_reason("ODD");
  Add(info);
  details_.set_code(13);
  grpc::Status status;
  ASSERT_TRUE(grpc::SetErrorDetails(details_, &status).ok());
  EXPECT_EQ(ToStatus(status).message(), "the daemon answered with error code 13 (ODD)");
  EXPECT_EQ(ErrorToJson(ToStatus(status))["error"]["message"],
            "the daemon answered with error code 13");
}

// What the fields say is in the message already: it is said once.
TEST_F(ErrorsTest, AMessageMadeOfItsFieldsIsNotRepeated) {
  google::rpc::ErrorInfo info;
  info.set_reason("BAD_FIELD");
  google::rpc::BadRequest bad;
  bad.add_field_violations()->set_field("spec.model");
  bad.mutable_field_violations(0)->set_description("is missing");
  Add(info);
  Add(bad);
  EXPECT_EQ(Text(3, "spec.model: is missing"), "a field is wrong (BAD_FIELD)\n  model: is missing");
  details_.clear_details();
  bad.add_field_violations()->set_field("spec.dataset");
  bad.mutable_field_violations(1)->set_description("is no file");
  Add(bad);
  EXPECT_EQ(Text(3, "spec.model: is missing\nspec.dataset: is no file"),
            "2 fields are wrong\n  model: is missing\n  dataset: is no file");
}

TEST_F(ErrorsTest, OtherDetailsAreSaidUnlessTheMessageSaysThem) {
  google::rpc::PreconditionFailure failure;
  failure.add_violations()->set_description("needs 5 bytes");
  auto* other = failure.add_violations();
  other->set_subject("device cpu:0");
  other->set_description("is draining");
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(5);
  Add(failure);
  Add(retry);
  EXPECT_EQ(Text(9, "the job needs 5 bytes"),
            "the job needs 5 bytes\n  device cpu:0: is draining\n  try again in 5 s");
}

TEST_F(ErrorsTest, WithoutDetailsTheMessageStands) {
  const grpc::Status plain(grpc::StatusCode::NOT_FOUND, "no job abc");
  EXPECT_EQ(ToStatus(plain), absl::NotFoundError("no job abc"));
  const grpc::Status gone(grpc::StatusCode::UNAVAILABLE, "Socket closed");
  EXPECT_EQ(ToStatus(gone).message(), "the daemon is not there any more (Socket closed)");
  const grpc::Status silent(grpc::StatusCode::INTERNAL, "");
  EXPECT_EQ(ToStatus(silent).message(), "the daemon answered with error code 13");
  const grpc::Status garbled(grpc::StatusCode::INTERNAL, "odd", "\xFF\xFF not a message");
  EXPECT_EQ(ToStatus(garbled).message(), "odd");
  EXPECT_TRUE(ToStatus(grpc::Status::OK).ok());
}

}  // namespace
}  // namespace snug::client
