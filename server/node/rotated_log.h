// Reads worker.log from its beginning on while its shim writes it and, when it has grown too long,
// makes it worker.log.1 and begins anew.
#ifndef SERVER_NODE_ROTATED_LOG_H_
#define SERVER_NODE_ROTATED_LOG_H_

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include "absl/status/statusor.h"

namespace snug::server {

class RotatedLog {
 public:
  explicit RotatedLog(std::string path) : path_(std::move(path)) {}

  // The next bytes, at most `limit`. Empty: that is all for now, or there is no such log. What was
  // dropped before it was read is passed over.
  absl::StatusOr<std::string> Read(size_t limit);

 private:
  // Number and time of birth: numbers are given out again.
  using FileId = std::tuple<uint64_t, int64_t, uint32_t>;

  static absl::StatusOr<FileId> IdOf(const std::string& path);
  absl::StatusOr<std::string> ReadFile(const std::string& path, size_t limit);

  const std::string path_;
  FileId file_;  // That is being read; zeros: none yet.
  int64_t offset_ = 0;
};

}  // namespace snug::server

#endif  // SERVER_NODE_ROTATED_LOG_H_
