// A file opened to be read, certainly a regular one: a FIFO or a device under a model's name
// neither blocks nor feeds without end. Symbolic links are followed, because the cache of
// huggingface_hub is made of them.
#ifndef WORKER_PROGRAM_REGULAR_FILE_H_
#define WORKER_PROGRAM_REGULAR_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace snug::program {

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

#endif  // WORKER_PROGRAM_REGULAR_FILE_H_
