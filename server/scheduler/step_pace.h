// How fast an attempt's steps come, and how long its worker may go without one. A worker's
// heartbeats come from a thread of their own: they say that the process lives, not that it trains.
//
// Where an evaluation or a checkpoint is due between two steps, the pause may be 20 times as long
// as the longest that there has been for the same, once enough have been seen.
#ifndef SERVER_SCHEDULER_STEP_PACE_H_
#define SERVER_SCHEDULER_STEP_PACE_H_

#include <cstdint>
#include <map>
#include <optional>

#include "absl/time/time.h"
#include "server/scheduler/recent_median.h"
#include "snug/v1/job.pb.h"
#include "snug/v1/worker.pb.h"

namespace snug::server {

struct PaceLimits {
  absl::Duration shortest;  // Whatever the pace.
  // Of what is no step: loading, evaluating, saving, exporting. Counted from the last sign of work,
  // which the processor time in heartbeats is too.
  absl::Duration other_work;
  // Of it from the last step on, whatever processor time it uses; or as many times as long as the
  // longest so far as a step may be longer than others.
  absl::Duration other_work_in_all;
  bool exports = false;  // It has been told to: no step is next.
};

class StepPace {
 public:
  // Work has begun anew: the attempt has started, or was adopted, or this process was away.
  void Begin(absl::Duration now) { worked_ = step_ = now; }
  void OnStep(const v1::JobSpec& spec, const v1::Progress& progress, absl::Duration now);
  void OnHeartbeat(const v1::WorkerEvent::Heartbeat& heartbeat, absl::Duration now);
  void OnCheckpoint(absl::Duration now) { worked_ = now; }

  // How much longer than allowed the worker has gone without work; not positive: not at all.
  absl::Duration Overdue(const v1::JobSpec& spec, const PaceLimits& limits,
                         absl::Duration now) const;

 private:
  // Between two steps, by what is due there.
  struct Pauses {
    int seen = 0;
    absl::Duration longest;
  };

  // What may come between the last step and the next one, as bits; 0: nothing. No value: what comes
  // is no step, or nobody knows.
  std::optional<uint32_t> DueNext(const v1::JobSpec& spec) const;

  v1::Progress last_;
  bool stepped_ = false;
  absl::Duration worked_;         // The last step, checkpoint or, between steps, processor time.
  absl::Duration step_;           // The last step.
  absl::Duration longest_pause_;  // Between two steps.
  std::map<uint32_t, Pauses> pauses_;
  double cpu_seconds_ = 0.0;  // In the last heartbeat.
  RecentMedian steps_s_;      // Times of the last steps.
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_STEP_PACE_H_
