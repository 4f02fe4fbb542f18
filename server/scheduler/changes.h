// What users change of jobs that there are: cancelling, pausing, priority, labels; deleting them.
#ifndef SERVER_SCHEDULER_CHANGES_H_
#define SERVER_SCHEDULER_CHANGES_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/scheduler/core.h"

namespace snug::server {

// A part of the scheduler: on its thread, over its state. Each gives the job as it is then.
class JobChanger {
 public:
  explicit JobChanger(SchedulerCore& core) : core_(core) {}

  // One that has ended is asked as well: its labels can be updated.
  absl::StatusOr<v1::Job> Ask(const std::string& key, const JobEvent& event);
  absl::StatusOr<v1::Job> Delete(const std::string& key);

 private:
  absl::Status IsBegunWith(const v1::Job& job, const std::string& successor) const;

  SchedulerCore& core_;
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_CHANGES_H_
