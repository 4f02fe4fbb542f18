// A file being written that must be on the disk, whole, before anyone is told of it; and the few
// operations on folders that publishing needs. Knows no format.
//
// The order that makes it safe is the caller's: files, folder, rename, parent.
#ifndef WORKER_CHECKPOINT_NEW_FILE_H_
#define WORKER_CHECKPOINT_NEW_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/checkpoint/sha256.h"

namespace snug::checkpoint {

// What is remembered of a file to recognise it by.
struct FileDigest {
  int64_t bytes = 0;
  std::string sha256;
};

class NewFile {
 public:
  // Creates `path` (never opens what is there, never follows a link; 0600) and takes its `bytes`
  // from the disk: a full disk shows here, before the first byte. UNAVAILABLE then.
  static absl::StatusOr<NewFile> Create(const std::string& path, int64_t bytes);

  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  // Hashes and writes; nothing is copied.
  absl::Status Append(const void* bytes, int64_t count);

  // Exactly the promised bytes must have been appended. Synced and closed afterwards.
  absl::StatusOr<FileDigest> Finish();

 private:
  NewFile(std::string path, int fd, int64_t bytes);
  absl::Status WriteAll(const char* bytes, int64_t count);

  std::string path_;
  int fd_;
  int64_t promised_bytes_;
  int64_t written_bytes_ = 0;
  Sha256 hash_;
};

// A call to the system that failed while something was written. UNAVAILABLE where room is missing,
// on the disk, of a quota or under a limit for files; ABORTED where the disk itself failed. Neither
// is the job's fault, and neither may look like memory (RESOURCE_EXHAUSTED) or like a loss that is
// not finite (OUT_OF_RANGE), which is what absl makes of them.
absl::Status WriteError(int error, const std::string& what);

// All of it at once.
absl::StatusOr<FileDigest> WriteNewFile(const std::string& path, std::string_view content);

// The same of a file that may be there already: written aside and renamed over it, so that a reader
// finds one or the other, whole; its folder is synced.
absl::Status ReplaceFile(const std::string& path, std::string_view content);

// The folder and those that it lies in, 0700, each synced into its parent. There already is fine,
// but for what is no folder.
absl::Status MakeFolders(const std::string& path);

// An empty folder, 0700: what a killed process left under this name goes first.
absl::Status MakeFreshFolder(const std::string& path);

// Removes a folder with all in it, never following a link. Absent is fine.
absl::Status RemoveFolder(const std::string& path);

absl::Status SyncFolder(const std::string& path);

// Synced: the folder `from` and the one that holds `to`. ALREADY_EXISTS when `to` does.
absl::Status PublishFolder(const std::string& from, const std::string& to);

}  // namespace snug::checkpoint

#endif  // WORKER_CHECKPOINT_NEW_FILE_H_
