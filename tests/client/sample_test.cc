#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fake_server.h"

namespace snug::client {
namespace {

using ::testing::HasSubstr;
using Writer = grpc::ServerWriter<v1::SampleChunk>;

v1::SampleChunk Piece(int prompt, const std::string& text, int token) {
  v1::SampleChunk chunk;
  chunk.mutable_piece()->set_prompt(prompt);
  chunk.mutable_piece()->set_text(text);
  chunk.mutable_piece()->add_tokens(token);
  return chunk;
}

v1::SampleChunk EndOf(int prompt) {
  v1::SampleChunk chunk;
  chunk.mutable_prompt_ended()->set_prompt(prompt);
  chunk.mutable_prompt_ended()->set_reason(v1::SampleChunk::PromptEnded::REASON_LENGTH);
  return chunk;
}

class SampleTest : public ::testing::Test {
 protected:
  SampleTest() {
    server_.sample = [this](const v1::SampleRequest& request, Writer* out) {
      asked_ = request;
      for (int i = 0; i < request.prompts_size(); ++i) {
        out->Write(Piece(i, "an", 7));
        out->Write(Piece(i, "swer\x1b[2J", 8));
        out->Write(EndOf(i));
      }
      return end_;
    };
  }

  FakeServer server_;
  v1::SampleRequest asked_;
  grpc::Status end_;
};

// What a model writes may not steer the terminal.
TEST_F(SampleTest, EachLineIsAPrompt) {
  const std::string file = server_.folder().Write("prompts.txt", "one\n\ntwo\r\n");
  const Ran ran = server_.Run({"sample", "abc", "--prompts", file, "--base", "--seed", "3",
                               "--temperature", "0.5", "--top-p", "0.9", "--max-new-tokens", "4"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out, "> one\nanswer?[2J\n\n> two\nanswer?[2J\n");
  ASSERT_EQ(asked_.prompts_size(), 2);
  EXPECT_EQ(asked_.prompts(1).text(), "two");
  EXPECT_TRUE(asked_.base());
  EXPECT_FALSE(asked_.has_checkpoint_step());
  EXPECT_EQ(asked_.settings().seed(), 3);
  EXPECT_EQ(asked_.settings().temperature(), 0.5);
  EXPECT_EQ(asked_.settings().top_p(), 0.9);
  EXPECT_EQ(asked_.settings().max_new_tokens(), 4);
}

TEST_F(SampleTest, ALineOfJsonIsAPromptOrAConversation) {
  const std::string file = server_.folder().Write(
      "prompts.jsonl",
      "{\"prompt\": \"one\"}\n{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}\n");
  const Ran ran =
      server_.Run({"sample", "abc", "--prompts", file, "--checkpoint", "5", "--output", "json"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  const auto json = nlohmann::json::parse(ran.out);
  EXPECT_EQ(json["answers"][1]["prompt"], "hi");
  EXPECT_EQ(json["answers"][1]["tokens"], nlohmann::json({7, 8}));
  EXPECT_EQ(json["answers"][0]["finish_reason"], "LENGTH");
  EXPECT_EQ(asked_.checkpoint_step(), 5);
  EXPECT_EQ(asked_.prompts(1).messages(0).role(), "user");

  const std::string wrong = server_.folder().Write("wrong.jsonl", "{\"prompt\": \"a\"}\n{}\n");
  const Ran refused = server_.Run({"sample", "abc", "--prompts", wrong});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr("wrong.jsonl, line 2: neither"));
}

// What came before the failure is shown, and the failure is said.
TEST_F(SampleTest, AFailureInTheMiddleIsAnError) {
  end_ = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the worker has failed: killed");
  const std::string file = server_.folder().Write("prompts.txt", "one\n");
  const Ran ran = server_.Run({"sample", "abc", "--prompts", file});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.out, HasSubstr("answer"));
  EXPECT_THAT(ran.err, HasSubstr("the worker has failed: killed"));
}

}  // namespace
}  // namespace snug::client
