// What the daemon remembers of jobs: one struct per table of the store. Their `job` is its key.
#ifndef SERVER_JOB_RECORDS_H_
#define SERVER_JOB_RECORDS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/job/drain_record.h"
#include "server/job/job_key.h"
#include "server/job/states.h"
#include "server/job/token_record.h"
#include "server/job/webhook_record.h"
#include "snug/v1/job.pb.h"
#include "snug/v1/plan.pb.h"

namespace snug::server {

struct JobRecord {
  v1::Job job;             // As the API shows it, with the spec, defaults filled in.
  int64_t order = 0;       // Of arrival: 1, 2, 3, ...
  int infra_failures = 0;  // In a row without progress.
  int oom_failures = 0;
  int64_t not_before_us = 0;     // Wall time before which no attempt starts.
  int64_t last_resume_step = 0;  // Of the newest attempt; a later one means progress.
  std::string train_data;        // Prepared datasets; empty until prepared.
  std::string eval_data;
  std::string output_dir;  // Of the attempt that made the output.

  const std::string& key() const { return KeyOf(job); }
  JobState state() const { return job.state(); }

  // The one gate for a job's state. Sets the reason and, for terminal states, the end time.
  absl::Status TransitionTo(JobState from, JobState to, std::string reason, int64_t wall_us);
};

struct AttemptRecord {
  std::string job;
  int epoch = 0;  // 1, 2, 3, ... per job: the fencing token.
  AttemptState state = AttemptState::kIntent;
  std::string nonce;
  std::string device;    // Its Device::id().
  std::string boot_id;   // Of the machine when it was started.
  int64_t shim_pid = 0;  // A hint only: the lock is the proof.
  v1::Plan plan;         // In force, as far as its worker has said so.
  int64_t cap_bytes = 0;
  std::string resume_from;  // Checkpoint folder, or empty.
  int64_t resume_step = 0;
  int64_t created_us = 0;
  std::string exit;  // Text of exit.json, or why there is none.

  absl::Status TransitionTo(AttemptState from, AttemptState to);
};

struct Reservation {
  std::string device;  // Its Device::id().
  std::string job;
  int epoch = 0;
  int64_t bytes = 0;
};

struct CheckpointRecord {
  enum State { kComplete = 1, kCorrupt = 2, kRemoved = 3 };
  std::string job;
  int64_t step = 0;
  int epoch = 0;
  std::string manifest_sha256;
  std::string dir;
  int64_t bytes = 0;
  State state = kComplete;
};

struct ArtifactRecord {
  std::string job;
  int epoch = 0;
  std::string dir;
  int64_t bytes = 0;
  std::string sha256;  // Of the list "<sha256>  <path>\n", sorted by path.
};

struct RequestRecord {
  // The ids of other users than the daemon's own begin with their names.
  std::string request_id, body_sha256, job;
  int64_t expires_us = 0;
};

struct EventRecord {
  int64_t seq = 0;  // Dense; given by the store.
  std::string job;
  JobState from = v1::Job::STATE_UNSPECIFIED, to = v1::Job::STATE_UNSPECIFIED;
  std::string reason;
  int64_t wall_us = 0;  // The row's is later than that of the event before it, whatever this says.
};

// The plans of a job that waits: a restart places it by them.
struct PlansRecord {
  std::string sha256;   // Of `plans`.
  std::string made_by;  // The build and the devices that they hold for.
  std::string plans;    // Serialised.
};

// A job on its way into the store.
struct NewJob {
  JobRecord record;
  EventRecord event;
  std::optional<RequestRecord> request;
  std::optional<RequestRecord> known;  // Set by the store: the request had made a job.
  absl::Status refusal;                // Why no job may be made of it: then it is only looked up.
};

// One transaction: all of it is durable, or none.
struct Change {
  const JobRecord* job = nullptr;          // Inserted or replaced.
  const AttemptRecord* attempt = nullptr;  // Likewise.
  std::vector<EventRecord> events;
  std::optional<Reservation> reserve;  // Instead of the attempt's own, if it has one.
  bool release = false;                // The reservation of `attempt`.
  std::vector<CheckpointRecord> checkpoints;
  std::optional<ArtifactRecord> artifact;
  std::shared_ptr<const PlansRecord> plans;  // Of `job`, whose spec its files have filled in.
  bool labels = false;                       // Those of `job` have changed.
  std::optional<TokenRecord> token;          // Inserted, or revoked.
  std::optional<DrainRecord> drain;
  std::optional<WebhookRecord> webhook;  // A call that was tried. A job's end makes it due.
  std::string deleted;  // The key of an ended job whose rows go, all but its events.
};

// One move of `record` through its gate, and the event that tells of it added to `change`.
absl::Status MoveJob(JobRecord& record, JobState to, std::string reason, int64_t wall_us,
                     Change& change);

// All that is loaded when the daemon starts.
struct StoredState {
  std::vector<JobRecord> jobs;               // Not ended, by order.
  std::vector<AttemptRecord> open_attempts;  // Not CLOSED: at most one per job.
  std::vector<Reservation> reservations;
  std::vector<DrainRecord> drains;
  std::map<std::string, std::string> plans_of;  // Job -> key in `plans`.
  std::map<std::string, PlansRecord> plans;
  std::map<JobState, int64_t> counts;  // Of all jobs, by state.
  int64_t last_order = 0;
};

}  // namespace snug::server

#endif  // SERVER_JOB_RECORDS_H_
