// Hashes of files that are written once, so that each is read once for its own: remembered by which
// file it is and when it was last changed, not by its path.
#ifndef SERVER_ARTIFACT_FILE_HASHES_H_
#define SERVER_ARTIFACT_FILE_HASHES_H_

#include <sys/stat.h>

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace snug::server {

// Which file, and in which state of it.
struct FileState {
  explicit FileState(const struct stat& file);

  uint64_t device, inode;
  int64_t bytes;
  int64_t written_ns, changed_ns;  // Since 1970.

  auto operator<=>(const FileState&) const = default;
};

// For any thread.
class FileHashes {
 public:
  // Of more than `most` files it forgets those that it has known longest.
  explicit FileHashes(size_t most = 20'000) : most_(most) {}

  std::optional<std::string> Find(const FileState& file) const ABSL_LOCKS_EXCLUDED(mutex_);
  void Put(const FileState& file, std::string sha256) ABSL_LOCKS_EXCLUDED(mutex_);
  // Reads the file where it is not known. A link is an error, and so is what is no regular file.
  absl::StatusOr<std::string> HashOf(const std::string& path) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const size_t most_;
  mutable absl::Mutex mutex_;
  std::map<FileState, std::string> hashes_ ABSL_GUARDED_BY(mutex_);
  std::deque<FileState> order_ ABSL_GUARDED_BY(mutex_);  // Oldest first.
};

}  // namespace snug::server

#endif  // SERVER_ARTIFACT_FILE_HASHES_H_
