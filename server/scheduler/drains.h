// Devices that an operator has drained: no job is placed there, and nobody answers prompts there,
// until they are undrained, over restarts of the daemon as well. Jobs that run there go on; where
// they are to move, each saves a checkpoint after its next step and goes back to its place in the
// queue.
#ifndef SERVER_SCHEDULER_DRAINS_H_
#define SERVER_SCHEDULER_DRAINS_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "server/scheduler/core.h"

namespace snug::server {

// A part of the scheduler, over its state. Replies come on its thread, after the commit.
class Drains {
 public:
  using Reply = std::function<void(absl::StatusOr<v1::Device>)>;

  explicit Drains(SchedulerCore& core) : core_(core) {}

  void Drain(const v1::DrainDeviceRequest& request, Reply reply) const;
  void Undrain(const v1::UndrainDeviceRequest& request, Reply reply) const;

 private:
  void Change(const std::string& device, DrainRecord change, Reply reply) const;
  absl::StatusOr<v1::Device> DoChange(const std::string& name, DrainRecord change) const;

  SchedulerCore& core_;
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_DRAINS_H_
