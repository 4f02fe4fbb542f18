// Bytes that one process makes and that many read: a file that each of them maps. Whoever comes
// first fills it, the others wait for that. Its size says whether it is whole: a process that died
// while it filled the file leaves it to the next. Each holds a lock on it that others may hold as
// well, so that who removes what nobody uses (server/node/shared_weights.h) sees who does.
#ifndef WORKER_WEIGHTS_SHARED_FILE_H_
#define WORKER_WEIGHTS_SHARED_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace snug::weights {

class SharedFile {
 public:
  SharedFile() = default;
  SharedFile(SharedFile&& other) noexcept;
  SharedFile& operator=(SharedFile&& other) noexcept;
  ~SharedFile();

  // `path`, of so many bytes, more than 0; its folder is made if it is not there. Unavailable: the
  // disk is full.
  static absl::StatusOr<SharedFile> Open(const std::string& path, int64_t bytes);

  // The content; who is the one to fill it may write there until it is published.
  char* data() const { return data_; }
  bool to_fill() const { return to_fill_; }
  // It is whole: nobody writes to it any more, and all may read.
  absl::Status Publish();

 private:
  absl::Status Map(int64_t bytes);
  absl::Status MakeRoom(const std::string& path, int64_t bytes) const;

  int file_ = -1;
  char* data_ = nullptr;
  int64_t bytes_ = 0;
  bool to_fill_ = false;
};

}  // namespace snug::weights

#endif  // WORKER_WEIGHTS_SHARED_FILE_H_
