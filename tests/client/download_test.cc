#include <cstring>
#include <filesystem>
#include <map>

#include "client/file_hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fake_server.h"

namespace snug::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

constexpr size_t kChunk = 3;
constexpr char kName[] = "tenants/default/jobs/abc/artifacts/";

class DownloadTest : public ::testing::Test {
 protected:
  using Files = std::map<std::string, std::string>;  // By path.

  // What the daemon has, and sends range by range.
  void Answer(const Files& files) {
    files_ = files;
    server_.artifacts = [this](const v1::ListArtifactsRequest& request,
                               v1::ListArtifactsResponse* reply) {
      listed_ = request;
      for (const auto& [path, content] : files_) {
        v1::Artifact& artifact = *reply->add_artifacts();
        artifact.set_name(kName + path);
        artifact.set_path(path);
        artifact.set_bytes(static_cast<int64_t>(content.size()));
        artifact.set_sha256(Sha256Of(said_.contains(path) ? said_[path] : content).value());
      }
      return grpc::Status::OK;
    };
    server_.download = [this](const v1::DownloadJobRequest& request,
                              grpc::ServerWriter<v1::FileChunk>* out) {
      asked_.push_back(request.id() + " " + std::to_string(request.offset()));
      return Send(request.id().substr(strlen(kName)), static_cast<size_t>(request.offset()), *out);
    };
  }
  grpc::Status Send(const std::string& path, size_t offset,
                    grpc::ServerWriter<v1::FileChunk>& out) {
    const std::string content = files_.at(path),
                      sent = sent_.contains(path) ? sent_[path] : content;
    for (size_t at = offset; at < sent.size(); at += kChunk) {
      if (breaks_at_ == at && breaks_-- > 0) return broken_;
      v1::FileChunk chunk;
      if (at == offset) {
        chunk.set_path(path);
        chunk.set_file_bytes(static_cast<int64_t>(sent.size()));
        chunk.set_offset(static_cast<int64_t>(at));
      }
      chunk.set_content(sent.substr(at, kChunk));
      if (at + kChunk >= sent.size()) chunk.set_sha256(Sha256Of(sent).value());
      out.Write(chunk);
    }
    return grpc::Status::OK;
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
    job_.mutable_spec()->set_method(v1::JobSpec::METHOD_LORA);
    job_.mutable_spec()->set_task(v1::JobSpec::TASK_CAUSAL_LM);
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

  // The folder of what has come so far; empty: there is none.
  std::string Partial() {
    for (const auto& entry : fs::directory_iterator(server_.folder().path("")))
      if (entry.path().filename().string().rfind("out.part-", 0) == 0) return entry.path().string();
    return "";
  }

  FakeServer server_;
  v1::Job job_;
  Files files_;
  Files sent_;  // Instead of what is listed.
  Files said_;  // What the listed hashes are of, instead of it.
  v1::ListArtifactsRequest listed_;
  std::vector<std::string> asked_;  // Names and offsets.
  size_t breaks_at_ = 0;
  int breaks_ = 0;
  grpc::Status broken_{grpc::StatusCode::DATA_LOSS, "a disk has failed"};
  const std::string target_ = server_.folder().path("out");
};

TEST_F(DownloadTest, FilesLieAtTheTopOfTheFolder) {
  Answer({{"adapter_config.json", "{}"},
          {"adapter_model.safetensors", "abcdef"},
          {"metrics.jsonl", ""}});
  const Ran ran = server_.Run({"download", "abc", target_});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out, target_ + "/adapter_config.json  2 B\n" + target_ +
                         "/adapter_model.safetensors  6 B\n" + target_ + "/metrics.jsonl  0 B\n");
  EXPECT_EQ(ReadFile(target_ + "/adapter_model.safetensors"), "abcdef");
  EXPECT_TRUE(fs::exists(target_ + "/metrics.jsonl"));
}

TEST_F(DownloadTest, SaysHowToServeWhatItWrote) {
  Trained("/models/base");
  Answer({{"a", "xy"}});
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
  Answer({{"README.md", "of /home/me\n"}, {"adapter_config.json", "{}"}});
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
  Answer({{"README.md", "of /home/me\n"}, {"adapter_config.json", config}});
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
  Answer({{"weights", "20"}});
  const Ran ran = server_.Run({"download", "abc", target_, "--checkpoint", "20"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(listed_.checkpoint_step(), 20);
  EXPECT_EQ(ReadFile(target_ + "/weights"), "20");
}

// Or by its name, of which a part is the job's.
TEST_F(DownloadTest, ACheckpointHasAName) {
  Answer({{"weights", "20"}});
  std::string got;
  server_.get = [&](const v1::GetJobRequest& request, v1::Job*) {
    got = request.id();
    return grpc::Status::OK;
  };
  const std::string job = "tenants/default/jobs/abc";
  EXPECT_EQ(server_.Run({"download", job + "/checkpoints/20", target_}).code, 0);
  EXPECT_EQ(got, job);
  EXPECT_EQ(listed_.id(), job + "/checkpoints/20");
}

TEST_F(DownloadTest, ArtifactsAreListedWithTheirHashes) {
  Answer({{"a", "xy"}, {"b", ""}});
  const std::string out = server_.Run({"artifacts", "abc"}).out;
  EXPECT_THAT(out, HasSubstr("FILE  SIZE  SHA-256\n"));
  EXPECT_THAT(out, HasSubstr("a      2 B  " + Sha256Of("xy").value() + "\n"));
  const auto json = nlohmann::json::parse(
      server_.Run({"artifacts", "abc", "--checkpoint", "5", "-o", "json"}).out);
  EXPECT_EQ(json["artifacts"][0]["sha256"], Sha256Of("xy").value());
  EXPECT_EQ(listed_.checkpoint_step(), 5);
}

// One list, of however many pages.
TEST_F(DownloadTest, ListsAreReadToTheirLastPage) {
  const auto page = [](const auto& request, auto* reply, auto add) {
    const std::string& token = request.page_token();
    EXPECT_EQ(request.page_size(), 1000);
    add("of " + token);
    reply->set_next_page_token(token.empty() ? "two" : token == "two" ? "three" : "");
    return grpc::Status::OK;
  };
  server_.files = [&](const v1::ListFilesRequest& request, v1::ListFilesResponse* reply) {
    return page(request, reply, [&](const std::string& id) { reply->add_files()->set_id(id); });
  };
  server_.tokens = [&](const v1::ListTokensRequest& request, v1::ListTokensResponse* reply) {
    return page(request, reply, [&](const std::string& id) { reply->add_tokens()->set_id(id); });
  };
  for (const char* kind : {"files", "tokens"}) {
    const std::string command = kind == std::string("files") ? "files" : "token";
    const auto json = nlohmann::json::parse(server_.Run({command, "list", "-o", "json"}).out);
    ASSERT_EQ(json[kind].size(), 3u) << json;
    EXPECT_EQ(json[kind][2]["id"], "of three");
    EXPECT_FALSE(json.contains("next_page_token") && json["next_page_token"] != "");
  }
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
  Answer({{"a", "xy"}});
  const auto json =
      nlohmann::json::parse(server_.Run({"download", "abc", target_, "-o", "json"}).out);
  EXPECT_EQ(json["directory"], target_);
  EXPECT_EQ(json["files"][0]["path"], "a");
  EXPECT_EQ(json["files"][0]["bytes"], "2");
  EXPECT_EQ(json["files"][0]["sha256"], Sha256Of("xy").value());
}

TEST_F(DownloadTest, AFolderThatIsNotEmptyStaysAsItIs) {
  server_.folder().Write("out/mine", "x");
  Answer({{"a", "xy"}});
  const Ran ran = server_.Run({"download", "abc", target_});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.err, HasSubstr("out is not empty; nothing was written"));
  EXPECT_FALSE(fs::exists(target_ + "/a"));
}

TEST_F(DownloadTest, AServerCannotWriteElsewhere) {
  Answer({{"a", "x"}, {"../evil", "x"}});
  const Ran ran = server_.Run({"download", "abc", target_});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.err, HasSubstr("\"../evil\", which could lead out of the folder"));
  ExpectNothingWritten();
}

// The folder appears whole, or not at all; what has come is not fetched again.
TEST_F(DownloadTest, ADownloadThatBrokeOffGoesOn) {
  Answer({{"a", "whole"}, {"b", "0123456789"}});
  breaks_at_ = 6;
  breaks_ = 1;
  const Ran broken = server_.Run({"download", "abc", target_});
  EXPECT_EQ(broken.code, 1);
  EXPECT_THAT(broken.err, HasSubstr(Partial() + " has what came; the same command goes on"));
  EXPECT_THAT(broken.err, HasSubstr("a disk has failed"));
  EXPECT_FALSE(fs::exists(target_));
  EXPECT_EQ(ReadFile(Partial() + "/b"), "012345");
  asked_.clear();
  EXPECT_EQ(server_.Run({"download", "abc", target_}).code, 0);
  EXPECT_THAT(asked_, ElementsAre(std::string(kName) + "b 6"));
  EXPECT_EQ(ReadFile(target_ + "/a") + ReadFile(target_ + "/b"), "whole0123456789");
  EXPECT_EQ(Partial(), "");
}

// The daemon restarts: the command waits, and goes on by itself.
TEST_F(DownloadTest, ADaemonThatIsAwayIsWaitedFor) {
  Answer({{"b", "0123456789"}});
  broken_ = grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
  breaks_at_ = 3;
  breaks_ = 2;
  const Ran ran = server_.Run({"download", "abc", target_});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(asked_, ElementsAre(std::string(kName) + "b 0", std::string(kName) + "b 3",
                                  std::string(kName) + "b 3"));
  EXPECT_EQ(ReadFile(target_ + "/b"), "0123456789");
}

// What is left of an earlier download may be of other files: their hashes say it.
TEST_F(DownloadTest, WhatIsThereAndIsNotOfTheFileIsFetchedAnew) {
  Answer({{"b", "0123456789"}});
  breaks_at_ = 6;
  breaks_ = 1;
  EXPECT_EQ(server_.Run({"download", "abc", target_}).code, 1);
  server_.folder().Write(fs::path(Partial()).filename().string() + "/b", "9999");
  server_.folder().Write(fs::path(Partial()).filename().string() + "/stray", "x");
  asked_.clear();
  const Ran ran = server_.Run({"download", "abc", target_});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(asked_, ElementsAre(std::string(kName) + "b 4", std::string(kName) + "b 0"));
  EXPECT_EQ(ReadFile(target_ + "/b"), "0123456789");
  EXPECT_FALSE(fs::exists(target_ + "/stray"));
}

TEST_F(DownloadTest, AnotherHashIsNoDownload) {
  Answer({{"a", "xyz"}});
  sent_["a"] = "xyZ";  // Changed since it was listed.
  Ran ran = server_.Run({"download", "abc", target_});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.err, HasSubstr("a has changed since it was listed"));
  sent_["a"] = "longer";
  EXPECT_THAT(server_.Run({"download", "abc", target_}).err,
              HasSubstr("a has 6 bytes now, and was listed with 3"));
  sent_.clear();
  said_["a"] = "abc";
  EXPECT_EQ(server_.Run({"download", "abc", target_}).code, 1);
  EXPECT_FALSE(fs::exists(target_));
}

TEST_F(DownloadTest, AJobThatHasNoOutputIsRefusedByTheDaemon) {
  server_.artifacts = [](const v1::ListArtifactsRequest&, v1::ListArtifactsResponse*) {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "job abc is RUNNING");
  };
  EXPECT_EQ(server_.Run({"download", "abc", target_}).err, "snug: job abc is RUNNING\n");
  ExpectNothingWritten();
}

}  // namespace
}  // namespace snug::client
