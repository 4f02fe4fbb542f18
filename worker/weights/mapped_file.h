// A file mapped read-only: its pages are the kernel's to drop and to share between workers of one
// model.
#ifndef WORKER_WEIGHTS_MAPPED_FILE_H_
#define WORKER_WEIGHTS_MAPPED_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace snug::weights {

class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  static absl::StatusOr<MappedFile> Open(const std::string& path);

  const char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // What was read there counts as this process's memory no more, until it is read again: all pages
  // that have some of it, for who reads a neighbour in place only finds its page again.
  void Release(int64_t begin, int64_t bytes) const;

 private:
  const char* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace snug::weights

#endif  // WORKER_WEIGHTS_MAPPED_FILE_H_
