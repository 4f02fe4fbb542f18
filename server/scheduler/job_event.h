// What can happen to a job: asked by its user, found on its way to an attempt, or reported of its
// attempt. Once it has ended, only users ask anything of it.
#ifndef SERVER_SCHEDULER_JOB_EVENT_H_
#define SERVER_SCHEDULER_JOB_EVENT_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "absl/time/time.h"
#include "server/job/records.h"
#include "server/scheduler/conclusion.h"
#include "server/scheduler/readiness.h"
#include "snug/v1/service.pb.h"
#include "snug/v1/worker.pb.h"

namespace snug::server {

// By users.
struct CancelAsked {
  bool keep = false;  // What has been trained is exported first.
};
struct PauseAsked {
  std::string cause;  // Why the daemon asks; empty: its user does.
};
struct ResumeAsked {};
struct UpdateAsked {
  const v1::UpdateJobRequest& request;
};

// On the way to an attempt.
struct MadeReady {
  const ReadyJob& ready;
  std::shared_ptr<const PlansRecord> plans;  // Of `ready`, as they are stored.
};
// No further attempt is made of it: what it needs cannot be had.
struct Refused {
  v1::Error error;
};
// It is paused until its user resumes it.
struct HeldBack {
  std::string reason;
};
// It has a place: bytes under a plan on a device.
struct Placed {
  std::string device;     // Its name, as users see it.
  std::string device_id;  // Device::id().
  const v1::Plan& plan;
  int64_t bytes = 0;
  int64_t most_bytes = 0;                  // No order of this attempt goes beyond it.
  std::optional<CheckpointRecord> resume;  // To go on from.
  std::string nonce;
  std::string boot_id;
};

// Of its attempt.
struct Spawned {
  int64_t shim_pid = 0;
};
// Its worker is there: by its Hello, or once more after a silence.
struct Heard {
  int64_t pid = 0;        // 0: not said.
  bool reported = false;  // Its model is loaded.
};
struct FellSilent {
  absl::Duration silent;
};
// A limit of bytes for the plans that the attempt may have, until it is lifted.
struct LimitAsked {
  int64_t bytes = 0;  // 0: none any more.
};
// It leaves its device for another job's sake.
struct Displaced {
  std::string reason;
};
// Another plan for its worker.
struct PlanOrdered {
  v1::Plan plan;
  int64_t bytes = 0;
  std::string reason;
  std::optional<int64_t> limit_bytes;  // As of LimitAsked; empty: that stays as it is.
  bool step_did_not_fit = false;       // What was predicted was too little.

  // What is reserved until it is answered: enough for this plan and for the one that is in force.
  int64_t BytesBeside(int64_t in_force) const { return std::max(in_force, bytes); }
};
struct PlanAnswered {
  const v1::WorkerEvent::PlanChanged& answer;
};
// Its lock is free, and everything that it left was looked at.
struct AttemptClosed {
  const ClosedAttempt& closed;
};

// Some refer to what their maker has: an event is handled at once, and never kept or posted.
using JobEvent = std::variant<CancelAsked, PauseAsked, ResumeAsked, UpdateAsked, MadeReady, Refused,
                              HeldBack, Placed, Spawned, Heard, FellSilent, Displaced, LimitAsked,
                              PlanOrdered, PlanAnswered, AttemptClosed>;

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_JOB_EVENT_H_
