// What the end of an attempt means for its job: a pure step from rows, and what was found of the
// attempt, to rows.
#ifndef SERVER_SCHEDULER_CONCLUSION_H_
#define SERVER_SCHEDULER_CONCLUSION_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/artifact/checkpoints.h"
#include "server/job/records.h"
#include "server/node/outcome.h"

namespace snug::server {

// What the end of an attempt came to, after everything that it left was looked at.
struct ClosedAttempt {
  Outcome outcome;
  absl::StatusOr<ArtifactRecord> output = absl::UnknownError("not looked at");  // Of a success.
  absl::StatusOr<CheckpointScan> checkpoints = CheckpointScan{};                // Of all others.
  absl::Status not_started;  // Why its shim could not be started; OK: it was.
  std::string moves;         // Why its job goes on elsewhere, in one sentence; empty: it does not.
  int64_t taken_bytes = 0;   // That others have of what is promised on its device.
};

struct Moment {
  int64_t now_us = 0;   // Wall time.
  double jitter = 0.0;  // In [-1, 1], for the pause before a retry.
};

// Moves `job` and `attempt`, which is closed then, and adds what else is stored to `change`.
absl::Status Conclude(const ClosedAttempt& closed, const Moment& moment, JobRecord& job,
                      AttemptRecord& attempt, Change& change);

// Of a job that is paused because none of its checkpoints can be read.
std::string DamagedReason(absl::string_view what);

// `state`: of the job by then.
absl::string_view NameForMetrics(JobState state, const ClosedAttempt& closed);

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_CONCLUSION_H_
