// What is asked, and the stream of answers between a worker's thread and a client's call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "server/answer/answer_stream.h"
#include "server/answer/asked_model.h"
#include "server/job/errors.h"

namespace snug::server {
namespace {

v1::SampleRequest Asking(const std::string& text) {
  v1::SampleRequest request;
  request.set_id("job-1");
  request.add_prompts()->set_text(text);
  return request;
}

v1::SampleChunk PieceOf(const std::string& text) {
  v1::SampleChunk chunk;
  chunk.mutable_piece()->set_text(text);
  return chunk;
}

TEST(SampleRequestTest, DefaultsAreFilledIn) {
  ASSERT_TRUE(CheckSampleRequest(Asking("hi")).ok());
  const v1::SampleSettings settings = SettingsOf(Asking("hi"), 8192);
  EXPECT_EQ(settings.max_new_tokens(), 256);
  EXPECT_EQ(SettingsOf(Asking("hi"), 256).max_new_tokens(), 128);  // The rest is the prompt's.
  EXPECT_EQ(settings.top_p(), 1.0);
  EXPECT_EQ(settings.temperature(), 0.0);
}

// All that is wrong at once.
TEST(SampleRequestTest, EachFieldThatIsWrongIsNamed) {
  v1::SampleRequest request = Asking("");
  request.set_base(true);
  request.set_checkpoint_step(3);
  request.mutable_settings()->set_max_new_tokens(32'769);
  request.mutable_settings()->set_temperature(std::nan(""));
  request.mutable_settings()->set_top_p(-0.5);
  const absl::Status status = CheckSampleRequest(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  std::vector<std::string> fields;
  for (const auto& [field, message] : FieldsOf(status)) fields.push_back(field);
  EXPECT_THAT(fields,
              testing::UnorderedElementsAre("prompts[0]", "settings.max_new_tokens",
                                            "settings.temperature", "settings.top_p", "base"));
  EXPECT_FALSE(CheckSampleRequest(v1::SampleRequest()).ok());
}

TEST(AnswerStreamTest, WhatWasPutIsTakenBeforeTheEnd) {
  AnswerStream stream;
  EXPECT_FALSE(stream.Take()->chunk.has_value());
  EXPECT_FALSE(stream.Take()->ended);
  EXPECT_TRUE(stream.Put(PieceOf("a")));
  stream.End(absl::UnavailableError("the worker has failed"));
  stream.End(absl::OkStatus());  // The first word stands.
  EXPECT_EQ(stream.Take()->chunk->piece().text(), "a");
  EXPECT_EQ(stream.Take().status().message(), "the worker has failed");
}

// A worker that is far ahead waits for its client, and for no client that has gone.
TEST(AnswerStreamTest, NobodyIsFurtherAheadThanTheLimit) {
  AnswerStream stream;
  size_t put = 0;
  std::thread worker([&] {
    while (stream.Put(PieceOf("a"))) ++put;
  });
  size_t taken = 0;
  while (taken < 3000) taken += stream.Take()->chunk.has_value() ? 1 : 0;
  stream.Cancel();
  worker.join();
  EXPECT_GE(put, taken);
  EXPECT_LE(put, taken + kMaxChunksAhead + 1);
  EXPECT_TRUE(stream.Cancelled());
}

}  // namespace
}  // namespace snug::server
