#include "worker/execute/host_buffer.h"

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/execute/torch_errors.h"

namespace snug::execute {

absl::StatusOr<HostBuffer> HostBuffer::Allocate(Device& device, int64_t bytes) {
  HostBuffer buffer;
  if (bytes == 0) return buffer;
  void* address = nullptr;
  RETURN_IF_ERROR(CatchTorch([&] { address = device.AllocateHost(bytes); }));
  if (address == nullptr)
    return absl::ResourceExhaustedError(absl::StrCat(
        "the host has no ", bytes, " bytes more for what the plan puts there"));
  buffer.memory_ = {static_cast<char*>(address), ReturnToHost{&device, bytes}};
  return buffer;
}

}  // namespace snug::execute
