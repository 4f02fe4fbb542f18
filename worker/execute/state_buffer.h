// Memory that stays from step to step and that a step touches once: on the device, or in the host's
// memory beside it, where a GPU's kernels reach it too, over the bus.
#ifndef WORKER_EXECUTE_STATE_BUFFER_H_
#define WORKER_EXECUTE_STATE_BUFFER_H_

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "proto/snug/status_macros.h"
#include "worker/execute/device.h"
#include "worker/execute/host_buffer.h"

namespace snug::execute {

enum class StatePlace : uint8_t { kDevice, kHost };

class StateBuffer {
 public:
  StateBuffer() = default;
  // ResourceExhausted: beyond the device's cap, or the host has no more. No bytes: data() is null.
  static absl::StatusOr<StateBuffer> Allocate(Device& device, int64_t bytes, StatePlace place) {
    StateBuffer buffer;
    if (place == StatePlace::kHost) {
      ASSIGN_OR_RETURN(buffer.on_host_, HostBuffer::Allocate(device, bytes));
    } else {
      ASSIGN_OR_RETURN(buffer.on_device_, DeviceBuffer::Allocate(device, bytes));
    }
    return buffer;
  }

  char* data() const { return on_host_.data() != nullptr ? on_host_.data() : on_device_.data(); }
  int64_t bytes() const { return on_host_.bytes() + on_device_.bytes(); }

 private:
  DeviceBuffer on_device_;
  HostBuffer on_host_;
};

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_STATE_BUFFER_H_
