#include "server/api/files.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "proto/snug/status_macros.h"
#include "server/job/job_key.h"
#include "server/node/attempt_files.h"
#include "server/node/rotated_log.h"

namespace snug::server {
namespace {

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

  absl::StatusOr<Next<v1::LogChunk>> operator()() {
    while (true) {
      // Asked before reading: what an ended job has written is all there then.
      ASSIGN_OR_RETURN(const JobPtr job, index_.Find(job_));
      const bool over = !follow_ || IsTerminal(job->state());
      ASSIGN_OR_RETURN(const std::string bytes, log_->Read(kChunkBytes));
      if (!bytes.empty()) {
        Next<v1::LogChunk> next = {.kind = Next<v1::LogChunk>::kMessage, .message = {}};
        next.message.set_text(bytes);
        return next;
      }
      if (epoch_ >= job->epoch() && over) return Next<v1::LogChunk>{};
      if (epoch_ >= job->epoch())
        return Next<v1::LogChunk>{.kind = Next<v1::LogChunk>::kWait, .message = {}};
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

}  // namespace

absl::StatusOr<MessageSource<v1::LogChunk>> LogSource(const JobIndex& index,
                                                      const std::string& state_dir,
                                                      const v1::GetJobLogsRequest& request) {
  ASSIGN_OR_RETURN(const JobPtr job, index.Find(request.id()));
  v1::GetJobLogsRequest whole = request;
  whole.set_id(KeyOf(*job));
  // An attempt that goes on from another begins with what that one has measured.
  const int first = request.metrics() ? std::max(job->epoch(), 1) : 1;
  auto reader = std::make_shared<LogReader>(index, state_dir, whole, first);
  return MessageSource<v1::LogChunk>([reader] { return (*reader)(); });
}

}  // namespace snug::server
