// What users change of jobs that there are: cancelling, pausing, priority, labels; deleting them.
#ifndef SERVER_SCHEDULER_CHANGES_H_
#define SERVER_SCHEDULER_CHANGES_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/scheduler/scheduler.h"

namespace snug::server {

// A part of the scheduler: on its thread, over its state. Each gives the job as it is then.
class JobChanger {
 public:
  explicit JobChanger(Scheduler& scheduler) : scheduler_(scheduler) {}

  absl::StatusOr<v1::Job> Cancel(const v1::CancelJobRequest& request);
  absl::StatusOr<v1::Job> Pause(const std::string& id);
  absl::StatusOr<v1::Job> Resume(const std::string& id);
  absl::StatusOr<v1::Job> Update(const v1::UpdateJobRequest& request);
  absl::StatusOr<v1::Job> Delete(const std::string& id);

 private:
  Scheduler& scheduler_;
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_CHANGES_H_
