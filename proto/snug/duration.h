// Times as people write them: "30d", "12h", "90m", "45s".
#ifndef PROTO_SNUG_DURATION_H_
#define PROTO_SNUG_DURATION_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace snug {

// In seconds: a whole number from 1 to 10^9 and a unit, d, h, m or s. InvalidArgument for anything
// else.
absl::StatusOr<int64_t> ParseSeconds(absl::string_view text);

}  // namespace snug

#endif  // PROTO_SNUG_DURATION_H_
