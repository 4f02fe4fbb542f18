#include "server/api/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/api/grpc_status.h"
#include "server/artifact/checkpoints.h"
#include "server/artifact/output.h"
#include "server/job/errors.h"
#include "server/node/attempt_files.h"
#include "server/node/rotated_log.h"

namespace snug::server {
namespace {

// Up to kChunkBytes from `offset`; empty at the end.
absl::StatusOr<std::string> ReadAt(const std::string& path, int64_t offset) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot open a file of the job");
  std::string bytes(kChunkBytes, '\0');
  const ssize_t got = pread(fd, bytes.data(), bytes.size(), offset);
  const int error = errno;
  close(fd);
  if (got < 0) return absl::ErrnoToStatus(error, "cannot read a file of the job");
  bytes.resize(static_cast<size_t>(got));
  return bytes;
}

NextChunk Chunk(const google::protobuf::MessageLite& message) {
  return {.kind = NextChunk::kChunk, .chunk = Encode(message)};
}

class LogReader {
 public:
  // `epoch`: of the attempt whose file comes first.
  LogReader(const JobIndex& index, std::string state_dir, const v1::GetJobLogsRequest& request,
            int epoch)
      : index_(index),
        state_dir_(std::move(state_dir)),
        job_(request.id()),
        file_(request.metrics() ? "/metrics.jsonl" : "/worker.log"),
        follow_(request.follow()),
        epoch_(epoch) {
    log_.emplace(Path());
  }

  absl::StatusOr<NextChunk> operator()() {
    while (true) {
      // Asked before reading: what an ended job has written is all there then.
      ASSIGN_OR_RETURN(const JobPtr job, index_.Find(job_));
      const bool over = !follow_ || IsTerminal(job->state());
      ASSIGN_OR_RETURN(const std::string bytes, log_->Read(kChunkBytes));
      if (!bytes.empty()) {
        v1::LogChunk chunk;
        chunk.set_text(bytes);
        return Chunk(chunk);
      }
      if (epoch_ >= job->epoch()) return NextChunk{over ? NextChunk::kEnd : NextChunk::kWait};
      ++epoch_;
      log_.emplace(Path());
    }
  }

 private:
  std::string Path() const { return AttemptDir(state_dir_, job_, epoch_) + file_; }

  const JobIndex& index_;
  const std::string state_dir_;
  const std::string job_;
  const std::string file_;
  const bool follow_;
  int epoch_;
  std::optional<RotatedLog> log_;
};

class OutputReader {
 public:
  explicit OutputReader(std::string dir) : dir_(std::move(dir)) {}

  absl::StatusOr<NextChunk> operator()() {
    if (!listed_) {
      ASSIGN_OR_RETURN(files_, ListOutput(dir_));
      listed_ = true;
    }
    if (next_ == files_.size()) return NextChunk{};
    const OutputFile& file = files_[next_];
    ASSIGN_OR_RETURN(std::string bytes, ReadAt(absl::StrCat(dir_, "/", file.path), offset_));
    if (bytes.empty() && offset_ < file.bytes)
      return absl::DataLossError(absl::StrCat(file.path, " has become shorter"));
    v1::FileChunk chunk;
    if (offset_ == 0) {
      chunk.set_path(file.path);
      chunk.set_file_bytes(file.bytes);
    }
    offset_ += static_cast<int64_t>(bytes.size());
    chunk.set_content(std::move(bytes));
    if (offset_ >= file.bytes) {
      ++next_;
      offset_ = 0;
    }
    return Chunk(chunk);
  }

 private:
  const std::string dir_;
  std::vector<OutputFile> files_;
  bool listed_ = false;
  size_t next_ = 0;
  int64_t offset_ = 0;
};

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
      absl::NotFoundError(absl::StrCat("job \"", job, "\" has no checkpoint of step ", step,
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

}  // namespace

absl::StatusOr<ChunkSource> LogSource(const JobIndex& index, const std::string& state_dir,
                                      const v1::GetJobLogsRequest& request) {
  ASSIGN_OR_RETURN(const JobPtr job, index.Find(request.id()));
  v1::GetJobLogsRequest whole = request;
  whole.set_id(job->id());
  // An attempt that goes on from another begins with what that one has measured.
  const int first = request.metrics() ? std::max(job->epoch(), 1) : 1;
  auto reader = std::make_shared<LogReader>(index, state_dir, whole, first);
  return ChunkSource([reader] { return (*reader)(); });
}

absl::StatusOr<ChunkSource> OutputSource(const JobIndex& index, const std::string& state_dir,
                                         const v1::DownloadJobRequest& request) {
  std::string dir;
  if (request.has_checkpoint_step()) {
    ASSIGN_OR_RETURN(const JobPtr job, index.Find(request.id()));
    ASSIGN_OR_RETURN(dir, CheckpointAt(state_dir, job->id(), request.checkpoint_step()));
  } else {
    ASSIGN_OR_RETURN(dir, index.OutputOf(request.id()));
  }
  auto reader = std::make_shared<OutputReader>(dir);
  return ChunkSource([reader] { return (*reader)(); });
}

absl::StatusOr<v1::ListCheckpointsResponse> CheckpointsOf(
    const JobIndex& index, const std::string& state_dir,
    const v1::ListCheckpointsRequest& request) {
  ASSIGN_OR_RETURN(const JobPtr job, index.Find(request.id()));
  ASSIGN_OR_RETURN(const std::vector<std::string> dirs,
                   ListCheckpoints(CheckpointsDir(state_dir, job->id())));
  v1::ListCheckpointsResponse response;
  for (const std::string& dir : dirs)
    if (std::optional<v1::Checkpoint> checkpoint = Described(dir))
      *response.add_checkpoints() = *std::move(checkpoint);
  return response;
}

}  // namespace snug::server
