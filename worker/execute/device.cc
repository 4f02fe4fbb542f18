#include "worker/execute/device.h"

#include <ATen/Parallel.h>

#include <cstring>

#include "proto/snug/status_macros.h"
#include "worker/execute/torch_errors.h"

namespace snug::execute {

CpuDevice::CpuDevice(int threads) : allocator_(TrackingAllocator::Install()) {
  at::set_num_threads(threads);
}

void CpuDevice::Copy(void* to, const void* from, int64_t bytes, int /*stream*/) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

void CpuDevice::Zero(void* to, int64_t bytes, int /*stream*/) {
  std::memset(to, 0, static_cast<size_t>(bytes));
}

absl::StatusOr<DeviceBuffer> DeviceBuffer::Allocate(Device& device, int64_t bytes) {
  DeviceBuffer buffer;
  buffer.bytes_ = bytes;
  RETURN_IF_ERROR(CatchTorch(
      [&] { buffer.memory_ = device.allocator().allocate(static_cast<size_t>(bytes)); }));
  return buffer;
}

}  // namespace snug::execute
