// The end of an attempt: its lock is free. What it left is looked at on a pool, then job, attempt,
// reservation, checkpoints and artifact change in one transaction.
#ifndef SERVER_SCHEDULER_CLOSING_H_
#define SERVER_SCHEDULER_CLOSING_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/scheduler/conclusion.h"
#include "server/scheduler/entry.h"
#include "server/scheduler/task_pool.h"

namespace snug::server {

struct SchedulerCore;

class Closing {
 public:
  explicit Closing(SchedulerCore& core) : core_(core) {}

  void Begin(Entry& entry);
  void Stop() { pool_.Stop(); }

 private:
  void OnLookedAt(const std::string& key, int epoch, absl::StatusOr<ClosedAttempt> closed);
  void ShowUndying(Entry& entry, bool undying);
  absl::Status Finish(Entry& entry, const ClosedAttempt& closed);

  SchedulerCore& core_;
  TaskPool pool_{2};
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_CLOSING_H_
