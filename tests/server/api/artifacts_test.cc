// What a job has made: lists with hashes, and downloads of ranges, each with the whole file's hash.
#include "server/api/artifacts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "server/data/sha256.h"
#include "server/job/errors.h"
#include "tests/server/testing/test_folder.h"
#include "tests/server/testing/tiny_model.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

// Longer than a chunk, and than what is hashed at once.
constexpr size_t kLarge = (20 << 20) + 17;

class ArtifactsTest : public testing::Test {
 protected:
  ArtifactsTest() {
    const std::string job = dir_ + "/jobs/a";
    WriteText(job + "/attempts/1/output/adapter_config.json", "{}");
    WriteText(job + "/attempts/1/output/merged/model.safetensors", "weights");
    WriteText(job + "/attempts/1/output/empty", "");
    for (size_t i = 0; large_.size() < kLarge; ++i) large_.push_back(static_cast<char>(i * i >> 7));
    WriteText(job + "/attempts/1/output/large", large_);
    WriteText(job + "/checkpoints/step-000010.e1/weights", "ten");
    WriteText(job + "/checkpoints/step-000020.e1/weights", "twenty");
    WriteText(job + "/checkpoints/step-000020.e2/weights", "twenty again");
    JobRecord record;
    record.order = 1;
    record.output_dir = job + "/attempts/1/output";
    record.job.set_id("a");
    record.job.set_owner("tenant:blue");
    record.job.set_state(v1::Job::STATE_SUCCEEDED);
    index_.Put(record);
  }

  static void WriteText(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(path).parent_path());
    snug::server::WriteText(path, text);
  }

  struct Got {
    std::string path, content, sha256;
    int64_t file_bytes = 0, offset = 0;
  };
  // One file's chunks, put together.
  absl::StatusOr<std::vector<Got>> Download(const v1::DownloadJobRequest& request) {
    auto source = artifacts_->Source(request);
    if (!source.ok()) return source.status();
    std::vector<Got> all;
    while (true) {
      const auto next = (*source)();
      if (!next.ok()) return next.status();
      if (next->kind == Next<v1::FileChunk>::kEnd) return all;
      if (next->kind == Next<v1::FileChunk>::kWait) continue;
      const v1::FileChunk& chunk = next->message;
      EXPECT_LE(chunk.content().size(), kChunkBytes);
      if (!chunk.path().empty())
        all.push_back({.path = chunk.path(),
                       .content = {},
                       .sha256 = {},
                       .file_bytes = chunk.file_bytes(),
                       .offset = chunk.offset()});
      EXPECT_EQ(all.back().sha256, "");  // Nothing comes behind the hash.
      all.back().content += chunk.content();
      all.back().sha256 = chunk.sha256();
    }
  }
  v1::DownloadJobRequest Range(const std::string& path, int64_t offset, int64_t length) {
    v1::DownloadJobRequest request;
    request.set_id("a");
    request.set_path(path);
    request.set_offset(offset);
    request.set_length(length);
    return request;
  }
  static std::vector<std::string> Paths(const v1::ListArtifactsResponse& list) {
    std::vector<std::string> paths;
    for (const v1::Artifact& artifact : list.artifacts()) paths.push_back(artifact.path());
    return paths;
  }

  const TestFolder folder_{"artifacts"};
  const std::string dir_ = folder_.path();
  std::string large_;
  JobIndex index_;
  PageTokens tokens_;
  std::unique_ptr<Artifacts> artifacts_ = std::make_unique<Artifacts>(index_, dir_, tokens_);
};

TEST_F(ArtifactsTest, EveryFileIsListedWithItsHash) {
  v1::ListArtifactsRequest request;
  request.set_id("a");
  const v1::ListArtifactsResponse list = artifacts_->List(request).value();
  EXPECT_THAT(Paths(list),
              ElementsAre("adapter_config.json", "empty", "large", "merged/model.safetensors"));
  const v1::Artifact& weights = list.artifacts(3);
  EXPECT_EQ(weights.bytes(), 7);
  EXPECT_EQ(weights.sha256(), Sha256Hex("weights"));
  EXPECT_EQ(weights.name(), "tenants/blue/jobs/a/artifacts/merged/model.safetensors");
  EXPECT_EQ(list.artifacts(1).sha256(), Sha256Hex(""));
  EXPECT_EQ(list.artifacts(2).sha256(), Sha256Hex(large_));
  request.set_page_size(3);
  const v1::ListArtifactsResponse first = artifacts_->List(request).value();
  EXPECT_EQ(first.artifacts_size(), 3);
  request.set_page_token(first.next_page_token());
  EXPECT_THAT(Paths(artifacts_->List(request).value()), ElementsAre("merged/model.safetensors"));
  request.set_checkpoint_step(20);  // Another list.
  EXPECT_EQ(ReasonOf(artifacts_->List(request).status()), "BAD_PAGE_TOKEN");
}

// Whoever wants no hash waits for none.
TEST_F(ArtifactsTest, WithoutHashesNoFileIsRead) {
  v1::ListArtifactsRequest request;
  request.set_id("a");
  request.mutable_read_mask()->add_paths("path");
  request.mutable_read_mask()->add_paths("bytes");
  const v1::ListArtifactsResponse list = artifacts_->List(request).value();
  EXPECT_EQ(list.artifacts(2).bytes(), static_cast<int64_t>(kLarge));
  EXPECT_EQ(list.artifacts(2).sha256() + list.artifacts(2).name(), "");
}

TEST_F(ArtifactsTest, ACheckpointsFilesAreItsOwn) {
  v1::ListArtifactsRequest request;
  request.set_id("a");
  request.set_checkpoint_step(10);
  const v1::ListArtifactsResponse list = artifacts_->List(request).value();
  ASSERT_EQ(list.artifacts_size(), 1);
  EXPECT_EQ(list.artifacts(0).name(), "tenants/blue/jobs/a/checkpoints/10/artifacts/weights");
  EXPECT_EQ(list.artifacts(0).sha256(), Sha256Hex("ten"));
  request.set_checkpoint_step(11);
  EXPECT_EQ(ReasonOf(artifacts_->List(request).status()), "CHECKPOINT_NOT_FOUND");
}

TEST_F(ArtifactsTest, CheckpointsHaveNamesAndPages) {
  v1::ListCheckpointsRequest request;
  request.set_id("a");
  request.set_page_size(2);
  const v1::ListCheckpointsResponse first = artifacts_->Checkpoints(request).value();
  ASSERT_EQ(first.checkpoints_size(), 2);
  EXPECT_EQ(first.checkpoints(0).name(), "tenants/blue/jobs/a/checkpoints/20");
  EXPECT_EQ(first.checkpoints(0).epoch(), 2);
  // It is not what a download of step 20 gives.
  EXPECT_EQ(first.checkpoints(1).epoch(), 1);
  EXPECT_EQ(first.checkpoints(1).name(), "");
  request.set_page_token(first.next_page_token());
  const v1::ListCheckpointsResponse second = artifacts_->Checkpoints(request).value();
  ASSERT_EQ(second.checkpoints_size(), 1);
  EXPECT_EQ(second.checkpoints(0).global_step(), 10);
  EXPECT_EQ(second.next_page_token(), "");
}

TEST_F(ArtifactsTest, TheWholeOutputComesWithHashes) {
  v1::DownloadJobRequest request;
  request.set_id("a");
  for (int time = 0; time < 2; ++time) {  // Unknown, and known.
    const std::vector<Got> all = Download(request).value();
    ASSERT_EQ(all.size(), 4u);
    for (const Got& got : all) {
      EXPECT_EQ(got.sha256, Sha256Hex(got.content)) << got.path;
      EXPECT_EQ(got.file_bytes, static_cast<int64_t>(got.content.size()));
    }
    EXPECT_EQ(all[2].content, large_);
  }
}

// Wherever the range lies, and whether the hash is known before, it is that of all of the file.
TEST_F(ArtifactsTest, ARangeComesWithTheHashOfTheWholeFile) {
  const int64_t bytes = static_cast<int64_t>(kLarge);
  const std::pair<int64_t, int64_t> ranges[] = {{0, 0},         {0, 1},         {5, 0},
                                                {5, 400'000},   {bytes - 1, 0}, {bytes - 9, 9},
                                                {18 << 20, 10}, {bytes, 0}};
  for (const auto& [offset, length] : ranges) {
    artifacts_ = std::make_unique<Artifacts>(index_, dir_, tokens_);  // That knows nothing.
    for (int time = 0; time < 2; ++time) {
      const std::vector<Got> all = Download(Range("large", offset, length)).value();
      ASSERT_EQ(all.size(), 1u);
      EXPECT_EQ(all[0].offset, offset);
      EXPECT_EQ(all[0].file_bytes, bytes);
      EXPECT_TRUE(all[0].content == large_.substr(offset, length == 0 ? bytes : length))
          << offset << " " << length;
      EXPECT_EQ(all[0].sha256, Sha256Hex(large_));
    }
  }
}

TEST_F(ArtifactsTest, ARangeOutsideIsRefused) {
  const int64_t bytes = static_cast<int64_t>(kLarge);
  for (const auto& [offset, length] : std::vector<std::pair<int64_t, int64_t>>{
           {bytes + 1, 0}, {bytes, 1}, {0, bytes + 1}, {1, bytes}, {1, INT64_MAX}}) {
    const absl::Status status = Download(Range("large", offset, length)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << offset << " " << length;
    EXPECT_EQ(ReasonOf(status), "RANGE_OUTSIDE");
    EXPECT_THAT(status.message(), HasSubstr("large has 20971537 bytes"));
  }
  EXPECT_EQ(FieldsOf(Download(Range("large", -1, 0)).status()).at(0).first, "offset");
  EXPECT_EQ(FieldsOf(Download(Range("large", 0, -1)).status()).at(0).first, "length");
  EXPECT_EQ(FieldsOf(Download(Range("", 3, 0)).status()).at(0).first, "offset");
  EXPECT_EQ(FieldsOf(Download(Range("", 0, 3)).status()).at(0).first, "length");
}

TEST_F(ArtifactsTest, OnlyWhatIsListedIsThere) {
  for (const char* path : {"none", "merged", "../output/large", "/etc/hostname", "./large"})
    EXPECT_EQ(ReasonOf(Download(Range(path, 0, 0)).status()), "ARTIFACT_NOT_FOUND") << path;
}

// A file that is written to while it is sent has the hash of nothing that there was.
TEST_F(ArtifactsTest, AFileThatChangesIsNoFileOfAJob) {
  const std::string path = dir_ + "/jobs/a/attempts/1/output/large";
  auto source = artifacts_->Source(Range("large", 0, 0)).value();
  ASSERT_TRUE(source().ok());
  fs::resize_file(path, 100);
  absl::Status status;
  while (status.ok()) {
    const auto next = source();
    status = next.status();
    ASSERT_FALSE(next.ok() && next->kind == Next<v1::FileChunk>::kEnd);
  }
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  // What is there now is listed as it is.
  v1::ListArtifactsRequest request;
  request.set_id("a");
  EXPECT_EQ(artifacts_->List(request).value().artifacts(2).sha256(),
            Sha256Hex(large_.substr(0, 100)));
}

// A checkpoint may be removed by its worker while somebody downloads it.
TEST_F(ArtifactsTest, AFileThatGoesIsSentToItsEnd) {
  auto source = artifacts_->Source(Range("large", 0, 0)).value();
  ASSERT_TRUE(source().ok());
  fs::remove(dir_ + "/jobs/a/attempts/1/output/large");
  std::string sha256;
  for (auto next = source().value(); next.kind != Next<v1::FileChunk>::kEnd;
       next = source().value())
    sha256 = next.message.sha256();
  EXPECT_EQ(sha256, Sha256Hex(large_));
}

}  // namespace
}  // namespace snug::server
