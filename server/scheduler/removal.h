// Taking away what ended jobs have left, for those who remove it: nothing that a job which has not
// ended was made from or goes on from is given away.
#ifndef SERVER_SCHEDULER_REMOVAL_H_
#define SERVER_SCHEDULER_REMOVAL_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/scheduler/core.h"

namespace snug::server {

enum class Leaving {
  kJob,  // Its row and all its files.
  kCheckpoints,
  kLogs,
};

class Removal {
 public:
  explicit Removal(SchedulerCore& core) : core_(core) {}

  // Waits for the scheduler's thread, so it is not for that one. UNAVAILABLE: not now. When it
  // returns OK what is named is nobody's: a folder, which is aside now and is the caller's to
  // remove; or empty: there is none, or, of logs, they are where they were.
  absl::StatusOr<std::string> TakeAway(const std::string& key, Leaving what) const;

  // On the scheduler's thread. Of a whole job: its rows are gone when it returns.
  absl::StatusOr<std::string> TakeJob(const v1::Job& job) const;

 private:
  absl::StatusOr<std::string> DoTakeAway(const std::string& key, Leaving what) const;

  SchedulerCore& core_;
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_REMOVAL_H_
