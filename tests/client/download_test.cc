#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fake_server.h"

namespace snug::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
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

  DownloadTest() {
    server_.get = [this](const v1::GetJobRequest&, v1::Job* job) {
      *job = job_;
      return grpc::Status::OK;
    };
  }

  // A LoRA job over `model` that has an adapter, which vLLM loads.
  void Trained(const std::string& model) {
    job_.set_id("abc");
    job_.set_display_name("Our answers");
    job_.mutable_spec()->set_model(model);
    job_.mutable_spec()->set_method(v1::JobSpec::LORA);
    job_.mutable_spec()->set_task(v1::JobSpec::CAUSAL_LM);
    job_.mutable_output()->set_loss(1.5);
    v1::ReaderReport& vllm = *job_.mutable_output()->add_readers();
    vllm.set_reader("vLLM");
    vllm.set_loads(true);
    vllm.set_notes("start it with --max-lora-rank 32");
  }

  // Neither the folder nor a part of it is left.
  void ExpectNothingWritten() {
    for (const auto& entry : fs::directory_iterator(server_.folder().path(""))) {
      EXPECT_EQ(entry.path().filename(), "s");
    }
  }

  FakeServer server_;
  v1::Job job_;
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

TEST_F(DownloadTest, SaysHowToServeWhatItWrote) {
  Trained("/models/base");
  Answer({Chunk("a", "xy", 2)});
  const std::string out = server_.Run({"download", "abc", target_}).out;
  EXPECT_THAT(out, HasSubstr("vLLM\n  vllm serve /models/base --enable-lora --max-lora-rank 32 "
                             "--lora-modules our-answers=" +
                             target_ + "\n"));
  fs::remove_all(target_);
  const auto json =
      nlohmann::json::parse(server_.Run({"download", "abc", target_, "-o", "json"}).out);
  EXPECT_EQ(json["serve"][1]["reader"], "vLLM");
  EXPECT_FALSE(json.contains("upload"));
}

TEST_F(DownloadTest, PushWritesTheCardAndTheCommand) {
  Trained("/hub/models--org--base/snapshots/0123abcd");
  Answer({Chunk("README.md", "of /home/me\n", 12), Chunk("adapter_config.json", "{}", 2)});
  const Ran ran = server_.Run({"download", "abc", target_, "--push", "me/answers"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.err, "");
  EXPECT_THAT(ran.out,
              HasSubstr("  hf upload me/answers " + target_ + " . --exclude 'merged/*'\n"));
  EXPECT_THAT(ReadFile(target_ + "/README.md"), HasSubstr("base_model: \"org/base\"\n"));
  EXPECT_EQ(ReadFile(target_ + "/adapter_config.json"), "{}");
}

// A folder here is of no use to others, and nobody's business.
TEST_F(DownloadTest, PushNamesNoFolderOfTheUsers) {
  Trained("/home/me/base");
  const std::string config = R"({"base_model_name_or_path": "/home/me/base", "r": 8})";
  Answer({Chunk("README.md", "of /home/me\n", 12),
          Chunk("adapter_config.json", config, static_cast<int64_t>(config.size()))});
  const Ran ran = server_.Run({"download", "abc", target_, "--push", "me/answers"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("the base /home/me/base is no snapshot of the hub's: the model "
                                 "card names no base_model"));
  const std::string card = ReadFile(target_ + "/README.md");
  EXPECT_THAT(card, Not(HasSubstr("/home/me")));
  EXPECT_THAT(card, Not(HasSubstr("base_model")));
  const auto written = nlohmann::json::parse(ReadFile(target_ + "/adapter_config.json"));
  EXPECT_TRUE(written["base_model_name_or_path"].is_null());
  EXPECT_EQ(written["r"], 8);
}

TEST_F(DownloadTest, PushRefusesWhatTheHubWould) {
  for (const char* id :
       {"answers", "me/my answers", "me/-answers", "me/a--b", "me/a.git", "a/b/c", "me/"}) {
    const Ran ran = server_.Run({"download", "abc", target_, "--push", id});
    EXPECT_EQ(ran.code, 1) << id;
    EXPECT_THAT(ran.err, HasSubstr(std::string("--push: \"") + id + "\""));
  }
  ExpectNothingWritten();
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
