#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fake_server.h"

namespace snug::client {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

v1::FileChunk Chunk(const std::string& path, const std::string& content, int64_t bytes = 0) {
  v1::FileChunk chunk;
  chunk.set_path(path);
  chunk.set_content(content);
  chunk.set_file_bytes(bytes);
  return chunk;
}

class DownloadTest : public ::testing::Test {
 protected:
  void Answer(std::vector<v1::FileChunk> chunks, grpc::Status status = grpc::Status::OK) {
    server_.download = [=](const v1::DownloadJobRequest&, grpc::ServerWriter<v1::FileChunk>* out) {
      for (const v1::FileChunk& chunk : chunks) out->Write(chunk);
      return status;
    };
  }

  // Neither the folder nor a part of it is left.
  void ExpectNothingWritten() {
    for (const auto& entry : fs::directory_iterator(server_.folder().path(""))) {
      EXPECT_EQ(entry.path().filename(), "s");
    }
  }

  FakeServer server_;
  const std::string target_ = server_.folder().path("out");
};

TEST_F(DownloadTest, FilesLieAtTheTopOfTheFolder) {
  Answer({Chunk("adapter_config.json", "{}", 2), Chunk("adapter_model.safetensors", "abc", 6),
          Chunk("", "def"), Chunk("metrics.jsonl", "", 0)});
  const Ran ran = server_.Run({"download", "abc", target_});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out, target_ + "/adapter_config.json  2 B\n" + target_ +
                         "/adapter_model.safetensors  6 B\n" + target_ + "/metrics.jsonl  0 B\n");
  EXPECT_EQ(ReadFile(target_ + "/adapter_model.safetensors"), "abcdef");
  EXPECT_TRUE(fs::exists(target_ + "/metrics.jsonl"));
}

TEST_F(DownloadTest, ACheckpointIsNamedByItsStep) {
  server_.download = [](const v1::DownloadJobRequest& request,
                        grpc::ServerWriter<v1::FileChunk>* out) {
    out->Write(Chunk("step", std::to_string(request.checkpoint_step()), 2));
    return grpc::Status::OK;
  };
  const Ran ran = server_.Run({"download", "abc", target_, "--checkpoint", "20"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ReadFile(target_ + "/step"), "20");
}

TEST_F(DownloadTest, CheckpointsAreListed) {
  server_.checkpoints = [](const v1::ListCheckpointsRequest& request,
                           v1::ListCheckpointsResponse* reply) {
    if (request.id() == "none") return grpc::Status::OK;
    for (const int step : {20, 5}) {
      v1::Checkpoint& checkpoint = *reply->add_checkpoints();
      checkpoint.set_global_step(step);
      checkpoint.set_epoch(step == 20 ? 2 : 1);
      checkpoint.set_bytes(1 << 20);
    }
    return grpc::Status::OK;
  };
  const std::string out = server_.Run({"checkpoints", "abc"}).out;
  EXPECT_THAT(out, HasSubstr("STEP  ATTEMPT   SIZE  WRITTEN\n"));
  EXPECT_THAT(out, HasSubstr("  20        2  1 MiB  1970-01-01"));
  const auto json = nlohmann::json::parse(server_.Run({"checkpoints", "abc", "-o", "json"}).out);
  EXPECT_EQ(json["checkpoints"][1]["global_step"], "5");
  EXPECT_EQ(server_.Run({"checkpoints", "none"}).out, "no checkpoints\n");
}

TEST_F(DownloadTest, JsonListsTheFiles) {
  Answer({Chunk("a", "xy", 2)});
  const auto json =
      nlohmann::json::parse(server_.Run({"download", "abc", target_, "-o", "json"}).out);
  EXPECT_EQ(json["directory"], target_);
  EXPECT_EQ(json["files"][0]["path"], "a");
  EXPECT_EQ(json["files"][0]["bytes"], "2");
}

TEST_F(DownloadTest, AFolderThatIsNotEmptyStaysAsItIs) {
  server_.folder().Write("out/mine", "x");
  Answer({Chunk("a", "xy", 2)});
  const Ran ran = server_.Run({"download", "abc", target_});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.err, HasSubstr("out is not empty; nothing was written"));
  EXPECT_FALSE(fs::exists(target_ + "/a"));
}

TEST_F(DownloadTest, AServerCannotWriteElsewhere) {
  Answer({Chunk("a", "x", 1), Chunk("../evil", "x", 1)});
  const Ran ran = server_.Run({"download", "abc", target_});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.err, HasSubstr("\"../evil\", which could lead out of the folder"));
  ExpectNothingWritten();
}

TEST_F(DownloadTest, AStreamThatBreaksLeavesNothing) {
  Answer({Chunk("a", "xy", 9)}, grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone"));
  EXPECT_EQ(server_.Run({"download", "abc", target_}).code, 1);
  ExpectNothingWritten();
  Answer({Chunk("a", "xy", 9)});
  EXPECT_THAT(server_.Run({"download", "abc", target_}).err,
              HasSubstr("only 2 of 9 bytes of a came"));
  ExpectNothingWritten();
}

TEST_F(DownloadTest, AJobThatHasNoOutputIsRefusedByTheDaemon) {
  Answer({}, grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "job abc is RUNNING"));
  EXPECT_EQ(server_.Run({"download", "abc", target_}).err, "snug: job abc is RUNNING\n");
  ExpectNothingWritten();
}

}  // namespace
}  // namespace snug::client
