// A file opened to be read, certainly a regular one: a FIFO or a device under a model's name
// neither blocks nor feeds without end. Symbolic links are followed, because the cache of
// huggingface_hub is made of them. All readers here open files through it, so that they also run in
// a process that was handed its files.
#ifndef WORKER_PROGRAM_FILES_REGULAR_FILE_H_
#define WORKER_PROGRAM_FILES_REGULAR_FILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace snug::program {

// What a process that may open no file was handed instead, by the paths that it is asked for.
struct HandedFile {
  int fd = -1;    // Where it was opened; owned by whoever made the table.
  int error = 0;  // Of opening it; 0 without a descriptor: it is there, and none may read it.
};
using HandedFiles = std::map<std::string, HandedFile>;

// From now on this process takes files from `files` alone, which outlives all reading. Before the
// first reading, and from one thread.
void ReadHandedFiles(const HandedFiles* files);

// Whether there is anything by that name, be it a link to nothing.
bool IsSomethingAt(const std::string& path);

// The names in a folder, sorted; none where there is no such folder. At most `limit`.
absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& folder, size_t limit);

class RegularFile {
 public:
  static absl::StatusOr<RegularFile> Open(const std::string& path);

  RegularFile(RegularFile&& other) noexcept;
  RegularFile& operator=(RegularFile&&) = delete;
  ~RegularFile();

  int64_t size() const { return size_; }  // Bytes, when it was opened.

  // Exactly `bytes` bytes from `offset`, or an error: the caller has compared both with size() and
  // its limits.
  absl::StatusOr<std::string> Read(int64_t offset, int64_t bytes) const;

 private:
  RegularFile(std::string path, int fd, int64_t size);

  std::string path_;
  int fd_;
  int64_t size_;
};

}  // namespace snug::program

#endif  // WORKER_PROGRAM_FILES_REGULAR_FILE_H_
