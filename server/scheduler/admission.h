// From queued to a started attempt: the policy decides, here it is made durable and then done.
#ifndef SERVER_SCHEDULER_ADMISSION_H_
#define SERVER_SCHEDULER_ADMISSION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/place/policy.h"
#include "server/scheduler/entry.h"

namespace snug::server {

struct SchedulerCore;

class Admission {
 public:
  explicit Admission(SchedulerCore& core) : core_(core) {}

  // Whether a job whose needs are known fits anywhere, were all else gone.
  bool Fits(const Entry& entry) const;
  // One that is queued and fits nowhere is refused now, not when its turn comes.
  void Refuse(Entry& entry);
  void Enqueue(const Entry& entry);
  // A round, where something has changed since the last one and that is not too short ago.
  void Schedule();
  // When the next round may be, where something has changed.
  absl::Duration NextRound() const;
  // Starts the worker of an attempt whose row is an intent.
  void Launch(Entry& entry);

 private:
  void ScheduleAgain(Entry& entry, const absl::Status& why);
  absl::Status Admit(Entry& entry, const Placement& placement);

  SchedulerCore& core_;
  absl::Duration last_round_;  // By SinceBoot().
  absl::Duration retry_at_;    // A round although nothing has changed; zero: not at all.
  // Wall time at which a waiting job's time comes; 0: none waits for it.
  int64_t time_comes_us_ = 0;
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_ADMISSION_H_
