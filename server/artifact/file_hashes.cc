#include "server/artifact/file_hashes.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/data/sha256.h"

namespace snug::server {
namespace {

int64_t Nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

absl::StatusOr<FileState> StateOf(const std::string& path) {
  struct stat file {};
  if (lstat(path.c_str(), &file) != 0)
    return absl::ErrnoToStatus(errno, "cannot look at a file of the job");
  if (!S_ISREG(file.st_mode)) return absl::DataLossError(absl::StrCat(path, " is no regular file"));
  return FileState(file);
}

}  // namespace

FileState::FileState(const struct stat& file)
    : device(file.st_dev),
      inode(file.st_ino),
      bytes(file.st_size),
      written_ns(Nanoseconds(file.st_mtim)),
      changed_ns(Nanoseconds(file.st_ctim)) {}

std::optional<std::string> FileHashes::Find(const FileState& file) const {
  absl::MutexLock lock(&mutex_);
  const auto found = hashes_.find(file);
  if (found == hashes_.end()) return std::nullopt;
  return found->second;
}

void FileHashes::Put(const FileState& file, std::string sha256) {
  absl::MutexLock lock(&mutex_);
  if (!hashes_.emplace(file, std::move(sha256)).second) return;
  order_.push_back(file);
  if (order_.size() <= most_) return;
  hashes_.erase(order_.front());
  order_.pop_front();
}

absl::StatusOr<std::string> FileHashes::HashOf(const std::string& path) {
  ASSIGN_OR_RETURN(const FileState before, StateOf(path));
  if (std::optional<std::string> known = Find(before)) return *std::move(known);
  ASSIGN_OR_RETURN(std::string sha256, Sha256File(path));
  ASSIGN_OR_RETURN(const FileState after, StateOf(path));
  if (before == after) Put(after, sha256);
  return sha256;
}

}  // namespace snug::server
