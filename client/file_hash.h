// Files of the user's, read in chunks, and their SHA-256 as lower-case hexadecimal digits.
#ifndef CLIENT_FILE_HASH_H_
#define CLIENT_FILE_HASH_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace snug::client {

// Calls `take` with each chunk of the file from `offset` on, until it says no. `name`: for errors.
absl::Status ReadFrom(int fd, int64_t offset, const std::string& name,
                      const std::function<bool(absl::string_view)>& take);

absl::StatusOr<std::string> Sha256OfFile(int fd, const std::string& name);
absl::StatusOr<std::string> Sha256Of(absl::string_view text);

}  // namespace snug::client

#endif  // CLIENT_FILE_HASH_H_
