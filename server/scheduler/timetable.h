// When the scheduler does what it does by the clock. Times since boot, but for the last.
#ifndef SERVER_SCHEDULER_TIMETABLE_H_
#define SERVER_SCHEDULER_TIMETABLE_H_

#include <cstdint>

#include "absl/time/time.h"

namespace snug::server {

struct Timetable {
  absl::Duration last_tick;
  absl::Duration next_tick;
  absl::Duration next_telling;
  absl::Duration last_maintained;
  absl::Duration last_round;
  absl::Duration refusal_told;  // To a worker that is not welcome.
  absl::Duration retry_at;      // A round although nothing has changed; zero: not at all.
  int64_t time_comes_us =
      0;  // Wall time at which a waiting job's time comes; 0: none waits for it.
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_TIMETABLE_H_
