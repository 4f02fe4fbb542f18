// Memory of the host beside a device's: what stashes are copied to, and what an optimizer keeps.
#ifndef WORKER_EXECUTE_HOST_BUFFER_H_
#define WORKER_EXECUTE_HOST_BUFFER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "worker/execute/device.h"

namespace snug::execute {

// How a HostBuffer's memory goes back.
struct ReturnToHost {
  Device* device = nullptr;
  int64_t bytes = 0;
  void operator()(char* address) const { device->FreeHost(address, bytes); }
};

// One piece of the host's memory, for as long as the object lives, which is shorter than the
// device's life.
class HostBuffer {
 public:
  HostBuffer() = default;
  // ResourceExhausted: the host has no more. No bytes: data() is null.
  static absl::StatusOr<HostBuffer> Allocate(Device& device, int64_t bytes);

  char* data() const { return memory_.get(); }
  int64_t bytes() const { return memory_.get_deleter().bytes; }

 private:
  std::unique_ptr<char, ReturnToHost> memory_;
};

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_HOST_BUFFER_H_
