#include <sstream>

#include "client/dataset_text.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fake_server.h"

namespace snug::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kReply = R"(
  rows { line: 3 tokens: 9 trained_tokens: 4 cut_tokens: 2 left_out_tokens: 1
         segments { text: "user\nwhat?" tokens: 4 }
         segments { text: "a \033[31mcat\n" weight: 1 tokens: 3 }
         segments { text: "!" weight: 0.5 tokens: 1 } }
  summary { rows: 40 tokens: 400 trained_tokens: 100 longest_row_tokens: 12 source_rows: 41
            untrained_rows: 1 format: "messages" warnings: "1 rows have no trained token" })";

std::string Printed(bool colour) {
  v1::PreviewDatasetResponse reply;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kReply, &reply));
  std::ostringstream out;
  PrintPreview(reply, colour, out);
  return out.str();
}

// Lines of the text stay lines; what could act on a terminal does not.
TEST(DatasetTextTest, WithoutColoursTrainedTextIsMarked) {
  EXPECT_EQ(Printed(false),
            "line 3: 9 tokens, 4 trained, 2 more cut off\n"
            "    user↵\n"
            "    what?«a ?[31mcat↵»\n"
            "    «0.5|!» ... 1 more tokens\n"
            "\n"
            "format     messages\n"
            "dataset    40 rows, 400 tokens (25.0 % trained), longest row 12, 1 left out (of the "
            "first 41)\n"
            "warning    1 rows have no trained token\n"
            "trained is what stands between « and »\n");
}

TEST(DatasetTextTest, OnATerminalTrainedTextIsGreen) {
  EXPECT_THAT(Printed(true), StartsWith("line 3: 9 tokens, 4 trained, 2 more cut off\n"
                                        "    \x1b[2muser↵\x1b[0m\n"
                                        "    \x1b[2mwhat?\x1b[0m\x1b[32ma ?[31mcat↵\x1b[0m\n"
                                        "    \x1b[32m0.5|!\x1b[0m ... 1 more tokens\n"));
}

class PreviewTest : public ::testing::Test {
 protected:
  PreviewTest() {
    server_.preview = [this](const v1::PreviewDatasetRequest& request,
                             v1::PreviewDatasetResponse* reply) {
      request_ = request;
      EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kReply, reply));
      return grpc::Status::OK;
    };
  }
  v1::PreviewDatasetRequest request_;
  FakeServer server_;
};

// Paths are the user's, from where he stands; the template is read here.
TEST_F(PreviewTest, AsksForWhatWasTyped) {
  const std::string jinja = server_.folder().Write("t.jinja", "{{ 1 }}");
  const Ran ran = server_.Run({"datasets", "preview", "/d.jsonl", "--model", "/m", "--rows", "7",
                               "--format", "sharegpt", "--chat-template", jinja, "--max-seq-length",
                               "64", "--added-token", "<a>", "--added-token=--b"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out, Printed(false));
  EXPECT_EQ(request_.spec().dataset(), "/d.jsonl");
  EXPECT_EQ(request_.spec().model(), "/m");
  EXPECT_EQ(request_.spec().dataset_format(), v1::JobSpec::DATASET_FORMAT_SHAREGPT);
  EXPECT_EQ(request_.spec().chat_template(), "{{ 1 }}");
  EXPECT_THAT(request_.spec().added_tokens(), ElementsAre("<a>", "--b"));
  EXPECT_EQ(request_.spec().training().max_seq_length(), 64);
  EXPECT_EQ(request_.rows(), 7);
}

TEST_F(PreviewTest, MistakesInTheCommandLine) {
  const Ran model = server_.Run({"datasets", "preview", "/d.jsonl"});
  EXPECT_EQ(model.code, 64);
  EXPECT_THAT(model.err, HasSubstr("--model is missing"));
  EXPECT_EQ(server_.Run({"datasets"}).code, 64);
  const Ran format = server_.Run({"datasets", "preview", "/d", "--model", "/m", "--format", "dpo"});
  EXPECT_EQ(format.code, 64);
  EXPECT_THAT(format.err, HasSubstr("sharegpt"));
}

// Columns of other names stand in the job file alone; flags are stronger than it.
TEST_F(PreviewTest, AJobFileStandsForItsDataset) {
  const std::string file = server_.folder().Write(
      "job.yaml",
      "model: ./m\ndataset: ./faq.csv\nmethod: lora\ncolumns: {prompt: Question}\n"
      "chat_template: \"{{ 1 }}\"\ntraining: {max_seq_length: 32}\n");
  const Ran ran = server_.Run({"datasets", "preview", file, "--max-seq-length", "16"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(request_.spec().model(), server_.folder().path("m"));
  EXPECT_EQ(request_.spec().dataset(), server_.folder().path("faq.csv"));
  EXPECT_EQ(request_.spec().columns().at("prompt"), "Question");
  EXPECT_EQ(request_.spec().chat_template(), "{{ 1 }}");
  EXPECT_EQ(request_.spec().training().max_seq_length(), 16);
}

TEST_F(PreviewTest, Json) {
  const Ran ran = server_.Run({"datasets", "preview", "/d.jsonl", "--model", "/m", "-o", "json"});
  EXPECT_FALSE(request_.spec().training().has_max_seq_length());  // 0 would be refused.
  const auto json = nlohmann::json::parse(ran.out);
  EXPECT_EQ(json["rows"][0]["segments"][1]["weight"], 1.0);
  EXPECT_EQ(json["summary"]["untrained_rows"], "1");
}

}  // namespace
}  // namespace snug::client
