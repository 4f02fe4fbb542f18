// Promises beside those of jobs, for workers that answer prompts: on the device and with the
// threads that the policy gives to one behind all jobs that wait. No job is squeezed or delayed for
// them. The daemon forgets them when it ends, so their workers end with it.
#ifndef SERVER_SCHEDULER_LEND_H_
#define SERVER_SCHEDULER_LEND_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "server/scheduler/device_plans.h"
#include "server/scheduler/core.h"

namespace snug::server {

struct Lent {
  Device device;
  v1::Plan plan;  // Whose peak is promised.
};

class Lender {
 public:
  explicit Lender(SchedulerCore& core) : core_(core) {}

  // Replies on the scheduler thread. RESOURCE_EXHAUSTED, with the bytes needed and free: there is
  // no room now.
  void Lend(std::string id, DevicePlans plans,
            std::function<void(absl::StatusOr<Lent>)> reply) const;
  // When nothing of the worker is left.
  void GiveBack(std::string id) const;

 private:
  absl::StatusOr<Lent> DoLend(const std::string& id, const DevicePlans& plans) const;

  SchedulerCore& core_;
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_LEND_H_
