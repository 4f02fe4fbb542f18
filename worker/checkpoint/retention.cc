// Which checkpoints there are, and which go. One goes in two steps, so that a folder with a
// checkpoint's name is always whole: renamed into .trash/, and only then taken apart.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/snug/status_macros.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/folder_name.h"
#include "worker/checkpoint/new_file.h"

namespace snug::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr char kTrash[] = ".trash";

struct Found {
  std::vector<CheckpointName> complete;    // Oldest first.
  std::vector<CheckpointName> unfinished;  // Being written, or left by a killed process.
};

absl::StatusOr<Found> Scan(const std::string& dir) {
  Found found;
  std::error_code error;
  fs::directory_iterator walk(dir, error);
  for (; !error && walk != fs::directory_iterator(); walk.increment(error)) {
    std::error_code gone;
    if (walk->symlink_status(gone).type() != fs::file_type::directory) continue;
    const std::string name = walk->path().filename().string();
    if (const auto complete = ParseCheckpointName(name)) {
      found.complete.push_back(*complete);
    } else if (const auto unfinished =
                   ParseCheckpointName(std::string(absl::StripSuffix(name, kUnfinished)))) {
      found.unfinished.push_back(*unfinished);
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot list ", dir));
  }
  std::sort(found.complete.begin(), found.complete.end());
  return found;
}

std::string PathOf(const std::string& dir, const CheckpointName& name) {
  return absl::StrCat(dir, "/", name.text());
}

absl::Status Discard(const std::string& dir, const CheckpointName& name) {
  const std::string trash = absl::StrCat(dir, "/", kTrash);
  if (mkdir(trash.c_str(), 0700) != 0 && errno != EEXIST) {
    return WriteError(errno, absl::StrCat("cannot create ", trash));
  }
  const std::string condemned = PathOf(trash, name);
  RETURN_IF_ERROR(PublishFolder(PathOf(dir, name), condemned));
  RETURN_IF_ERROR(SyncFolder(dir));
  return RemoveFolder(condemned);
}

// What processes left that were killed at work: theirs are earlier epochs, and an epoch has ended
// when a later one has saved.
absl::Status SweepLeftOvers(const std::string& dir, const Found& found) {
  RETURN_IF_ERROR(RemoveFolder(absl::StrCat(dir, "/", kTrash)));
  for (const CheckpointName& name : found.unfinished) {
    if (name.epoch >= found.complete.back().epoch) continue;
    RETURN_IF_ERROR(RemoveFolder(PathOf(dir, name) + kUnfinished));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> List(const std::string& checkpoints_dir) {
  ASSIGN_OR_RETURN(const Found found, Scan(checkpoints_dir));
  std::vector<std::string> paths;
  for (const CheckpointName& name : found.complete) {
    paths.push_back(PathOf(checkpoints_dir, name));
  }
  return paths;
}

absl::Status Prune(const std::string& checkpoints_dir, int64_t keep, const std::string& best) {
  if (keep < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot keep ", keep, " checkpoints; at least 1"));
  }
  ASSIGN_OR_RETURN(const Found found, Scan(checkpoints_dir));
  if (found.complete.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(SweepLeftOvers(checkpoints_dir, found));
  const int64_t surplus = static_cast<int64_t>(found.complete.size()) - keep;
  if (surplus <= 0) return absl::OkStatus();
  RETURN_IF_ERROR(Verify(PathOf(checkpoints_dir, found.complete.back())).status());
  for (int64_t i = 0; i < surplus; ++i) {
    if (found.complete[i].text() == best) continue;
    RETURN_IF_ERROR(Discard(checkpoints_dir, found.complete[i]));
  }
  return absl::OkStatus();
}

}  // namespace snug::checkpoint
