// Reading of files that this component wrote: by streams, so that a checkpoint of any size takes a
// megabyte of memory.
#ifndef WORKER_CHECKPOINT_READ_FILE_H_
#define WORKER_CHECKPOINT_READ_FILE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/checkpoint/new_file.h"

namespace snug::checkpoint {

enum class Links : uint8_t { kRefuse, kFollow };

// A regular file opened to be read. Where the files are a user's, links are followed: a cache of
// models is made of them.
class OpenFile {
 public:
  static absl::StatusOr<OpenFile> Open(const std::string& path, Links links);

  OpenFile(OpenFile&& other) noexcept;
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile();

  int64_t bytes() const { return bytes_; }  // When it was opened.

  // Exactly `count` bytes from `begin`, into `to`.
  absl::Status Read(int64_t begin, int64_t count, void* to) const;

  // Calls `use` with one piece after another of the `count` bytes from `begin`; stops at its first
  // error. A piece has a multiple of 8 bytes, except the last.
  absl::Status ForEachPiece(int64_t begin, int64_t count,
                            const std::function<absl::Status(std::string_view)>& use) const;

 private:
  OpenFile(std::string path, int fd, int64_t bytes);

  std::string path_;
  int fd_;
  int64_t bytes_;
};

// Size and hash of a file; a symbolic link is an error.
absl::StatusOr<FileDigest> DigestFile(const std::string& path);

// A new file with the content of another, links followed. Longer than `max_bytes`: an error.
absl::Status CopyFile(const std::string& from, const std::string& to, int64_t max_bytes);

}  // namespace snug::checkpoint

#endif  // WORKER_CHECKPOINT_READ_FILE_H_
