// SHA-256 of texts and files, as lower-case hexadecimal digits.
#ifndef SERVER_DATA_SHA256_H_
#define SERVER_DATA_SHA256_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include "absl/strings/string_view.h"

#include "absl/status/statusor.h"

struct evp_md_ctx_st;  // OpenSSL's.

namespace snug::server {

// Of bytes that come one after another.
class Sha256 {
 public:
  Sha256();
  void Add(absl::string_view bytes);
  std::string Hex();  // Once, at the end.

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

std::string Sha256Hex(absl::string_view text);

// Asked after each megabyte of a file; its error ends the reading.
using HashWatch = std::function<absl::Status(int64_t done_bytes, int64_t of_bytes)>;

// Of a regular file only: no FIFO, no device. It is read from its beginning, and its offset stays.
// `path` names it in errors.
absl::StatusOr<std::string> Sha256Open(int fd, const std::string& path,
                                       const HashWatch& watch = nullptr);
absl::StatusOr<std::string> Sha256File(const std::string& path, const HashWatch& watch = nullptr);

}  // namespace snug::server

#endif  // SERVER_DATA_SHA256_H_
