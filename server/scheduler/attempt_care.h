// What is done about an attempt, from what is known of it: a pure step from a state and signs to a
// state and actions, so that each of its rules is a test.
#ifndef SERVER_SCHEDULER_ATTEMPT_CARE_H_
#define SERVER_SCHEDULER_ATTEMPT_CARE_H_

#include "absl/time/time.h"
#include "server/node/node.h"
#include "server/scheduler/limits.h"

namespace snug::server {

// From one that runs to one whose remains are looked at. What has begun to end is ended, whatever
// its worker says meanwhile. Times are by SinceBoot().
struct AttemptEnd {
  enum class Stage {
    kRuns,
    kTold,      // To stop, over its link.
    kTermSent,  // And by a signal.
    kGone,      // Its lock is free: the kernel's word.
    kClosing,   // What it left is being looked at.
  };
  Stage stage = Stage::kRuns;
  absl::Duration told;         // Since when.
  absl::Duration close_again;  // Not before; after a look at its remains that failed.

  bool begun() const { return stage != Stage::kRuns; }
  bool gone() const { return stage == Stage::kGone || stage == Stage::kClosing; }
};

// What is known of it at the moment.
struct AttemptSigns {
  Liveness liveness = Liveness::kLives;
  bool cancelled = false;  // Without an output to wait for.
  bool linked = false;     // Its worker would hear now.
  bool greeted = false;    // It has said Hello.
  bool hangs = false;      // By its own pace: no step, no work.
  int bad_messages = 0;
  absl::Duration age;     // Since it was started or adopted.
  absl::Duration silent;  // Since its worker was last heard.
};

struct Care {
  bool tell = false;            // The worker to stop.
  bool term = false;            // Signals to its processes.
  bool kill = false;            // Likewise.
  bool kill_shim = false;       // Which would have ended by itself.
  bool gone = false;            // It has just been found to be.
  bool close = false;           // Its remains are to be looked at.
  bool unreachable = false;     // It is to be shown as that.
  const char* fault = nullptr;  // Why it is told to end, where nobody has asked for it.
};

Care CareFor(const AttemptSigns& signs, absl::Duration now, const SchedulerLimits& limits,
             AttemptEnd& end);

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_ATTEMPT_CARE_H_
