#include "proto/snug/json.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "snug/v1/job.pb.h"
#include "snug/v1/worker.pb.h"

namespace snug {
namespace {

using ::testing::HasSubstr;

v1::Job JobWithWords() {
  v1::Job job;
  job.set_id("words-1");
  job.set_state(v1::Job::STATE_RUNNING);
  job.set_reason("STATE_RUNNING");  // Text of its own, whatever it says.
  v1::MemorySpec& memory = *job.mutable_spec()->mutable_memory();
  (*memory.mutable_stash())["layers.*"] = v1::STASH_KIND_RECOMPUTE;
  memory.set_fidelity(v1::FIDELITY_UNBIASED);
  (*job.mutable_labels())["state"] = "STATE_FAILED";
  job.mutable_progress()->set_num_tokens(1LL << 60);
  job.mutable_create_time()->set_seconds(1700000000);
  return job;
}

TEST(JsonTest, EnumsAreWordsWhereverTheyStandAndTextStays) {
  const auto json = MessageToJson(JobWithWords());
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ((*json)["state"], "RUNNING");
  EXPECT_EQ((*json)["reason"], "STATE_RUNNING");
  EXPECT_EQ((*json)["spec"]["memory"]["stash"]["layers.*"], "recompute");
  EXPECT_EQ((*json)["spec"]["memory"]["fidelity"], "UNBIASED");
  EXPECT_EQ((*json)["labels"]["state"], "STATE_FAILED");
  EXPECT_EQ((*json)["progress"]["num_tokens"], "1152921504606846976");
  EXPECT_EQ((*json)["create_time"], "2023-11-14T22:13:20Z");
  EXPECT_FALSE(json->contains("device"));
}

TEST(JsonTest, AllFieldsAreThereWhereTheyAreAskedFor) {
  const auto json = MessageToJson(v1::Job(), JsonFields::kAll);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ((*json)["state"], "STATE_UNSPECIFIED");
  EXPECT_EQ((*json)["device"], "");
  EXPECT_FALSE(json->contains("spec"));
}

TEST(JsonTest, WhatIsWrittenIsReadAgain) {
  const v1::Job job = JobWithWords();
  v1::Job read;
  ASSERT_TRUE(JsonToMessage(MessageToJson(job)->dump(), UnknownFields::kRefused, &read).ok());
  EXPECT_EQ(read.SerializeAsString().size(), job.SerializeAsString().size());
  EXPECT_EQ(MessageToJson(read)->dump(), MessageToJson(job)->dump());
  EXPECT_EQ(read.spec().memory().stash().at("layers.*"), v1::STASH_KIND_RECOMPUTE);
}

// Of 0 as well, which protobuf tells from a field that is not there.
TEST(JsonTest, NumbersStayWhatTheyAreToTheBit) {
  for (double loss : {-0.0, -0.5, 1e-05, -1e-07, -1.5e+300, 0.1, 123456789.0}) {
    v1::WorkerResult result, read;
    result.mutable_progress()->set_loss(loss);
    result.mutable_error()->set_message("-0 \\\"-0\\");
    const auto json = MessageToJson(result);
    ASSERT_TRUE(json.ok()) << json.status();
    ASSERT_TRUE(JsonToMessage(json->dump(), UnknownFields::kRefused, &read).ok()) << *json;
    EXPECT_EQ(read.SerializeAsString(), result.SerializeAsString()) << *json;
  }
}

TEST(JsonTest, WholeNamesAndCamelCaseAreRead) {
  v1::WorkerResult result;
  ASSERT_TRUE(JsonToMessage(R"({"outcome": "OUTCOME_FAILED", "failureClass": "OUT_OF_MEMORY"})",
                            UnknownFields::kRefused, &result)
                  .ok());
  EXPECT_EQ(result.outcome(), v1::WorkerResult::OUTCOME_FAILED);
  EXPECT_EQ(result.failure_class(), v1::WorkerResult::FAILURE_CLASS_OUT_OF_MEMORY);
}

TEST(JsonTest, WhatIsUnknownIsRefusedOrIgnored) {
  v1::WorkerResult result;
  const std::string text = R"({"outcome": "FAILED", "colour": {"outcome": "BLUE"}})";
  const absl::Status refused = JsonToMessage(text, UnknownFields::kRefused, &result);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("colour"));
  EXPECT_TRUE(JsonToMessage(text, UnknownFields::kIgnored, &result).ok());
  EXPECT_EQ(result.outcome(), v1::WorkerResult::OUTCOME_FAILED);
}

TEST(JsonTest, NoJsonSaysSo) {
  v1::WorkerResult result;
  for (const char* text : {"", "{", "[]", "{\"outcome\": }", "\"FAILED\""})
    EXPECT_EQ(JsonToMessage(text, UnknownFields::kIgnored, &result).code(),
              absl::StatusCode::kInvalidArgument)
        << text;
}

TEST(JsonTest, AWordThatIsNoValuesIsRefusedOrLeftOut) {
  v1::WorkerResult result;
  const std::string text = R"({"outcome": "RED"})";
  const absl::Status refused = JsonToMessage(text, UnknownFields::kRefused, &result);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("RED"));
  EXPECT_TRUE(JsonToMessage(text, UnknownFields::kIgnored, &result).ok());
  EXPECT_EQ(result.outcome(), v1::WorkerResult::OUTCOME_UNSPECIFIED);
}

TEST(JsonTest, BracketsInTextNestNothing) {
  v1::Job job;
  const std::string text = R"({"reason": "\")" + std::string(500, '[') + R"("})";
  EXPECT_TRUE(JsonToMessage(text, UnknownFields::kRefused, &job).ok());
  EXPECT_EQ(job.reason().size(), 501u);
}

// A parser that follows it to the end has no stack left.
TEST(JsonTest, NestingHasALimit) {
  v1::WorkerResult result;
  const std::string open(20 << 20, '[');
  for (const std::string& text : {open, "{\"colour\": " + open,
                                  "{\"colour\": " + open + std::string(open.size(), ']') + "}"}) {
    const absl::Status refused = JsonToMessage(text, UnknownFields::kIgnored, &result);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(refused.message(), "more than 100 levels");
  }
}

}  // namespace
}  // namespace snug
