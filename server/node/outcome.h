// How an attempt ended, from what its shim and its worker left behind, and what follows for the
// job. Pure functions.
#ifndef SERVER_NODE_OUTCOME_H_
#define SERVER_NODE_OUTCOME_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/node/attempt_files.h"
#include "snug/v1/worker.pb.h"

namespace snug::server {

enum class Ending {
  kSucceeded,       // Says the worker; the output is still to be verified.
  kStopped,         // On command.
  kUserError,       // The job's own: bad data, NaN. No retry.
  kOutOfMemory,     // The cap was hit: plan again.
  kDiskFull,        // No room for what it writes: wait for some.
  kTransient,       // Something else that passes by itself (server/job/transient.h).
  kInfrastructure,  // Killed, lost, I/O: try again.
};

struct Outcome {
  Ending ending = Ending::kInfrastructure;
  v1::Error error;          // Of all endings but the first two.
  v1::WorkerResult result;  // Empty when the worker wrote none.
  std::string exit;         // For the record: text of exit.json, or why there is none.
};

// Exit codes: 0 finished, 3 stopped on command, 4 failed with its error in result.json; killed by
// the kernel for its control group's memory: out of memory; anything else is infrastructure.
Outcome Judge(const absl::StatusOr<std::optional<ExitRecord>>& exit,
              const absl::StatusOr<std::optional<v1::WorkerResult>>& result);

// Failures of a job so far, in a row without progress.
struct Failures {
  int infra = 0;
  int oom = 0;
};

inline constexpr int kMaxInfraRetries = 5;
inline constexpr int kMaxOomRetries = 2;

struct RetryDecision {
  bool retry = false;
  absl::Duration delay;
  Failures failures;   // To be remembered.
  std::string reason;  // In one sentence, for the job.
};

// The first infrastructure retry at once, then after 10 s * 2^n of at most 10 min, +-20 %; at
// most 5 in a row. A newer checkpoint than the one that the attempt started from is progress and
// starts the count again. Out of memory: at most 2, each under another plan. What passes by itself
// is nobody's failure and counts as none: again after a minute, where the disk is full after the
// longest delay, however often. `jitter` in [-1, 1].
RetryDecision DecideRetry(Ending ending, Failures before, bool progressed, double jitter);

}  // namespace snug::server

#endif  // SERVER_NODE_OUTCOME_H_
