#include "server/api/artifacts.h"

#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/api/file_sender.h"
#include "server/api/masks.h"
#include "server/api/pages.h"
#include "server/artifact/checkpoints.h"
#include "server/artifact/output.h"
#include "server/job/errors.h"
#include "server/job/job_key.h"
#include "server/job/names.h"
#include "server/node/attempt_files.h"

namespace snug::server {
namespace {

CheckpointName NameOfCheckpoint(const std::string& dir) {
  return *ParseCheckpointName(std::filesystem::path(dir).filename().string());
}

// Where two attempts have come to the same step: the later one's.
absl::StatusOr<std::string> CheckpointAt(const std::string& state_dir, const std::string& job,
                                         int64_t step) {
  ASSIGN_OR_RETURN(const std::vector<std::string> dirs,
                   ListCheckpoints(CheckpointsDir(state_dir, job)));
  std::string there;
  for (const std::string& dir : dirs) {
    const int64_t at = NameOfCheckpoint(dir).step;
    if (at == step) return dir;
    absl::StrAppend(&there, there.empty() ? "" : ", ", at);
  }
  return WithReason(
      absl::NotFoundError(absl::StrCat("job \"", IdIn(job), "\" has no checkpoint of step ", step,
                                       "; it has ", there.empty() ? "none" : there)),
      "CHECKPOINT_NOT_FOUND");
}

// Nothing: its worker has removed it meanwhile.
std::optional<v1::Checkpoint> Described(const std::string& dir) {
  const absl::StatusOr<std::vector<OutputFile>> files = ListOutput(dir);
  struct stat status {};
  if (!files.ok() || stat(dir.c_str(), &status) != 0) return std::nullopt;
  v1::Checkpoint checkpoint;
  checkpoint.set_global_step(NameOfCheckpoint(dir).step);
  checkpoint.set_epoch(NameOfCheckpoint(dir).epoch);
  for (const OutputFile& file : *files) checkpoint.set_bytes(checkpoint.bytes() + file.bytes);
  checkpoint.mutable_create_time()->set_seconds(status.st_mtim.tv_sec);
  checkpoint.mutable_create_time()->set_nanos(static_cast<int32_t>(status.st_mtim.tv_nsec));
  return checkpoint;
}

absl::Status CheckRange(const v1::DownloadJobRequest& request) {
  std::vector<Violation> found;
  const auto check = [&](const char* field, int64_t value) {
    if (value < 0) found.push_back({field, "cannot be negative", "BAD_FIELD"});
    if (value > 0 && request.path().empty())
      found.push_back({field, "is of one file: name its path", "BAD_FIELD"});
  };
  check("offset", request.offset());
  check("length", request.length());
  return found.empty() ? absl::OkStatus() : InvalidRequest(found);
}

absl::Status NoArtifact(const v1::DownloadJobRequest& request) {
  return WithReason(
      absl::NotFoundError(absl::StrCat("job \"", IdIn(request.id()), "\" has no file \"",
                                       request.path(), "\" there")),
      "ARTIFACT_NOT_FOUND");
}

// Files one after another, or the one that was asked for.
class FolderReader {
 public:
  FolderReader(std::string dir, const v1::DownloadJobRequest& request, FileHashes& hashes)
      : dir_(std::move(dir)), request_(request), hashes_(hashes) {}

  absl::StatusOr<Next<v1::FileChunk>> operator()() {
    if (!listed_) RETURN_IF_ERROR(List());
    if (sender_ != nullptr) {
      ASSIGN_OR_RETURN(Next<v1::FileChunk> next, sender_->Pull());
      if (next.kind != Next<v1::FileChunk>::kEnd) return next;
    }
    if (next_ == files_.size()) return Next<v1::FileChunk>{};
    ASSIGN_OR_RETURN(sender_, FileSender::Open(dir_, files_[next_++], range_, hashes_));
    return sender_->Pull();  // Whose first is a message, or that it hashes.
  }

 private:
  absl::Status List() {
    ASSIGN_OR_RETURN(files_, ListOutput(dir_));
    listed_ = true;
    if (request_.path().empty()) return absl::OkStatus();
    std::erase_if(files_, [&](const OutputFile& file) { return file.path != request_.path(); });
    if (files_.empty()) return NoArtifact(request_);
    range_ = {.offset = request_.offset(), .length = request_.length()};
    return absl::OkStatus();
  }

  const std::string dir_;
  const v1::DownloadJobRequest request_;
  FileHashes& hashes_;
  std::vector<OutputFile> files_;
  FileRange range_;
  bool listed_ = false;
  size_t next_ = 0;
  std::unique_ptr<FileSender> sender_;
};

}  // namespace

template <typename Request>
absl::StatusOr<std::string> Artifacts::FolderOf(const Request& request) const {
  if (!request.has_checkpoint_step()) return index_.OutputOf(request.id());
  ASSIGN_OR_RETURN(const JobPtr job, index_.Find(request.id()));
  return CheckpointAt(state_dir_, KeyOf(*job), request.checkpoint_step());
}

absl::StatusOr<v1::ListCheckpointsResponse> Artifacts::Checkpoints(
    const v1::ListCheckpointsRequest& request) const {
  ASSIGN_OR_RETURN(const JobPtr job, index_.Find(request.id()));
  ASSIGN_OR_RETURN(const std::vector<std::string> dirs,
                   ListCheckpoints(CheckpointsDir(state_dir_, KeyOf(*job))));
  std::vector<Listed<v1::Checkpoint>> list;
  for (const std::string& dir : dirs) {
    std::optional<v1::Checkpoint> checkpoint = Described(dir);
    if (!checkpoint) continue;
    const int64_t step = checkpoint->global_step();
    // By its step one is known; an earlier attempt's of the same step is not reached.
    if (list.empty() || list.back().message.global_step() != step)
      checkpoint->set_name(JobCheckpointName(*job, step));
    list.push_back(
        {SortedBackwards(step) + SortedBackwards(checkpoint->epoch()), *std::move(checkpoint)});
  }
  return ResponseOf(PageOf(request, std::move(list), tokens_),
                    &v1::ListCheckpointsResponse::add_checkpoints);
}

absl::StatusOr<v1::ListArtifactsResponse> Artifacts::List(const v1::ListArtifactsRequest& request) {
  ASSIGN_OR_RETURN(const JobPtr job, index_.Find(request.id()));
  ASSIGN_OR_RETURN(const std::string dir, FolderOf(request));
  ASSIGN_OR_RETURN(const std::vector<OutputFile> files, ListOutput(dir));
  const std::optional<int64_t> step =
      request.has_checkpoint_step() ? std::optional(request.checkpoint_step()) : std::nullopt;
  std::vector<Listed<v1::Artifact>> list;
  for (const OutputFile& file : files) {
    v1::Artifact artifact;
    artifact.set_name(ArtifactName(*job, step, file.path));
    artifact.set_path(file.path);
    artifact.set_bytes(file.bytes);
    list.push_back({file.path, std::move(artifact)});
  }
  const auto hash = [&](v1::Artifact& artifact) -> absl::Status {
    if (!Wants(request.read_mask(), "sha256")) return absl::OkStatus();
    ASSIGN_OR_RETURN(*artifact.mutable_sha256(),
                     hashes_.HashOf(absl::StrCat(dir, "/", artifact.path())));
    return absl::OkStatus();
  };
  return ResponseOf(PageOf(request, std::move(list), tokens_, hash),
                    &v1::ListArtifactsResponse::add_artifacts);
}

absl::StatusOr<MessageSource<v1::FileChunk>> Artifacts::Source(
    const v1::DownloadJobRequest& request) {
  RETURN_IF_ERROR(CheckRange(request));
  ASSIGN_OR_RETURN(const std::string dir, FolderOf(request));
  auto reader = std::make_shared<FolderReader>(dir, request, hashes_);
  return MessageSource<v1::FileChunk>([reader] { return (*reader)(); });
}

}  // namespace snug::server
