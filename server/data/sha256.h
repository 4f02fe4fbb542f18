// SHA-256 of texts and files, as lower-case hexadecimal digits.
#ifndef SERVER_DATA_SHA256_H_
#define SERVER_DATA_SHA256_H_

#include <cstdint>
#include <functional>
#include <string>
#include "absl/strings/string_view.h"

#include "absl/status/statusor.h"

namespace snug::server {

std::string Sha256Hex(absl::string_view text);

// Asked after each megabyte of a file; its error ends the reading.
using HashWatch = std::function<absl::Status(int64_t done_bytes, int64_t of_bytes)>;

// Of a regular file only: no FIFO, no device.
absl::StatusOr<std::string> Sha256File(const std::string& path, const HashWatch& watch = nullptr);

}  // namespace snug::server

#endif  // SERVER_DATA_SHA256_H_
