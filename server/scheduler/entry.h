// A job that has not ended, as the scheduler thread holds it.
#ifndef SERVER_SCHEDULER_ENTRY_H_
#define SERVER_SCHEDULER_ENTRY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/job/records.h"
#include "server/node/node.h"
#include "server/node/worker_link.h"
#include "server/place/job_queue.h"
#include "server/scheduler/attempt_care.h"
#include "server/scheduler/interference.h"
#include "server/scheduler/readiness.h"
#include "server/scheduler/step_correction.h"
#include "server/scheduler/step_pace.h"

namespace snug::server {

// What a new job takes from the one that it extends.
struct Extension {
  std::string job;         // The key of that one.
  int64_t step = 0;        // Of the checkpoint that it goes on from; 0: it extends none.
  std::string train_data;  // Prepared, as its JobRecord has them.
  std::string eval_data;
  v1::DatasetSummary dataset;
};

// A new job, well-formed, on its way into the store. What its files say is checked before it is
// prepared.
struct CreateOrder {
  v1::JobSpec spec;
  std::string owner;       // Principal::name().
  std::string parent_job;  // As v1::Job has it; or empty.
  Extension extends;
  std::string job_id;      // Empty: chosen here.
  std::string request_id;  // Empty: not idempotent.
  std::string body_sha256;
  absl::Status refusal;  // Why no job may be made of it, unless its request has made one.
};

struct LiveAttempt {
  AttemptRecord record;
  std::unique_ptr<AttemptProcesses> processes;  // From the start on, or from its adoption.
  WorkerLink::ConnectionId link = 0;            // 0: none now.
  absl::Duration started;                       // By SinceBoot(), in this life of the daemon.
  absl::Duration last_heard;
  AttemptEnd end;
  absl::Status not_started;    // Why its shim could not be started; OK: it was.
  StepPace pace;               // What tells a worker at work from one that hangs.
  StepCorrection correction;   // Of the time that its plan predicts.
  Interference interference;   // Of its neighbours.
  bool reported = false;       // Its model is loaded: it has said where it is.
  absl::Duration seen;         // When its process was last looked at from outside.
  int64_t last_step = 0;       // That it reported in this life of the daemon.
  bool changes_plans = false;  // Its worker can, and has not refused to.
  int bad_messages = 0;
  bool undying = false;  // The kernel cannot end a process of it: its bytes are not free.
};

struct Entry {
  JobRecord record;
  std::unique_ptr<LiveAttempt> attempt;  // While the state has one.
  Readiness readiness;
  // That it is ready is on its way into the store: nothing else happens to it before
  // (Readying::Settle).
  bool storing = false;
  // As stored when its last attempt ended: shown beside the time to its next one.
  std::string retry_cause;
  absl::Duration last_saved;
  // The furthest that metrics have counted: steps run again after a checkpoint count once.
  int64_t counted_steps = 0;
  int64_t counted_tokens = 0;

  // Null: it cannot be placed yet.
  const ReadyJob* ready() const { return readiness.job(); }
  JobState state() const { return record.state(); }
  const std::string& key() const { return record.key(); }
};

// Its place in the order in which jobs are asked.
inline JobQueue::Key PlaceInLine(const JobRecord& record) {
  return {-record.job.priority(), record.order, record.key()};
}

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_ENTRY_H_
