// Byte sizes as people write them: "12GiB", "1.5 GiB", "500MB", "4096".
#ifndef PROTO_SNUG_BYTES_H_
#define PROTO_SNUG_BYTES_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace snug {

// A number, a space or none, and a unit: none or B, KiB MiB GiB TiB (powers of 1024), kB MB GB TB
// (powers of 1000), in any case. A fraction of a byte is dropped. InvalidArgument for anything else
// and for what int64 cannot hold; "12G" is refused, as half of the world's tools read it as 10^9
// and the other half as 2^30.
absl::StatusOr<int64_t> ParseBytes(absl::string_view text);

// In the largest unit of 1024 that leaves at least 1, with one decimal unless it is whole: "4 GiB",
// "17.2 GiB", "512 B".
std::string FormatBytes(int64_t bytes);

}  // namespace snug

#endif  // PROTO_SNUG_BYTES_H_
