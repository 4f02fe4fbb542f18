// SHA-256 of texts and files, as lower-case hexadecimal digits.
#ifndef SERVER_DATA_SHA256_H_
#define SERVER_DATA_SHA256_H_

#include <string>
#include "absl/strings/string_view.h"

#include "absl/status/statusor.h"

namespace snug::server {

std::string Sha256Hex(absl::string_view text);

// Of a regular file only: no FIFO, no device.
absl::StatusOr<std::string> Sha256File(const std::string& path);

}  // namespace snug::server

#endif  // SERVER_DATA_SHA256_H_
