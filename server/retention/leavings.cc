#include "server/retention/leavings.h"

#include <sys/stat.h>

#include <filesystem>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/job/log.h"
#include "server/node/attempt_files.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBlockBytes = 512;  // Of st_blocks, whatever the file system's own are.

int64_t BytesOf(const fs::path& path) {
  struct stat file {};
  return lstat(path.c_str(), &file) == 0 ? file.st_blocks * kBlockBytes : 0;
}

bool IsLog(const fs::path& path) {
  const std::string name = path.filename().string();
  return absl::StartsWith(name, "worker.log") || name == "metrics.jsonl" ||
         absl::StartsWith(name, "events.out.tfevents");
}

std::vector<fs::path> LogsOf(const std::string& state_dir, const std::string& job) {
  std::vector<fs::path> logs;
  std::error_code error, inner;
  const std::string attempts = absl::StrCat(state_dir, "/jobs/", job, "/attempts");
  for (const auto& attempt : fs::directory_iterator(attempts, error))
    for (const auto& file : fs::directory_iterator(attempt.path(), inner))
      if (IsLog(file.path())) logs.push_back(file.path());
  return logs;
}

}  // namespace

int64_t BytesBelow(const std::string& folder) {
  std::error_code error;
  int64_t bytes = 0;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error))
    bytes += BytesOf(it->path());
  return bytes;
}

Leavings LeavingsOf(const std::string& state_dir, const std::string& job) {
  const std::string checkpoints = CheckpointsDir(state_dir, job);
  Leavings leavings;
  std::error_code error;
  leavings.has_checkpoints = !fs::is_empty(checkpoints, error) && !error;
  leavings.checkpoint_bytes = BytesBelow(checkpoints);
  leavings.all_bytes = BytesBelow(absl::StrCat(state_dir, "/jobs/", job));
  for (const fs::path& log : LogsOf(state_dir, job)) {
    leavings.has_logs = true;
    leavings.log_bytes += BytesOf(log);
  }
  return leavings;
}

void RemoveLogs(const std::string& state_dir, const std::string& job) {
  for (const fs::path& log : LogsOf(state_dir, job)) {
    std::error_code error;
    fs::remove(log, error);
    if (error) spdlog::error("cannot remove {}: {}", log.string(), error.message());
  }
}

void RemoveFolder(const std::string& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  if (error) spdlog::error("cannot remove {}: {}", folder, error.message());
}

}  // namespace snug::server
