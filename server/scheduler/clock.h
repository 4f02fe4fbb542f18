// The two clocks: durations and timeouts by one that nobody can set and that counts sleep;
// wall time for people and `not before`.
#ifndef SERVER_SCHEDULER_CLOCK_H_
#define SERVER_SCHEDULER_CLOCK_H_

#include <cstdint>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/node/clock.h"

namespace snug::server {

inline int64_t WallMicros() { return absl::ToUnixMicros(absl::Now()); }

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_CLOCK_H_
