// The clock of durations and timeouts: nobody can set it, and it counts sleep.
#ifndef SERVER_NODE_CLOCK_H_
#define SERVER_NODE_CLOCK_H_

#include <time.h>

#include "absl/time/time.h"

namespace snug::server {

inline absl::Duration SinceBoot() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return absl::DurationFromTimespec(now);
}

}  // namespace snug::server

#endif  // SERVER_NODE_CLOCK_H_
