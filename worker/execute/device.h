// A device as the worker uses it: memory, streams, functions of the ops. The CPU is done here; a
// GPU is another class of this shape.
#ifndef WORKER_EXECUTE_DEVICE_H_
#define WORKER_EXECUTE_DEVICE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/execute/allocator.h"
#include "worker/execute/op_run.h"

namespace snug::execute {

class Device {
 public:
  virtual ~Device() = default;

  virtual const std::string& name() const = 0;
  virtual TrackingAllocator& allocator() = 0;
  virtual const OpFunctionTable& ops() const = 0;

  // Streams order what runs on them; an event recorded on one can be waited for on another.
  virtual void Copy(void* to, const void* from, int64_t bytes, int stream) = 0;
  virtual void Zero(void* to, int64_t bytes, int stream) = 0;
  virtual void Record(int event, int stream) = 0;
  virtual void Wait(int event, int stream) = 0;
  // Until everything on all streams is done.
  virtual absl::Status Synchronize() = 0;
};

// cpu:0. One stream: every call is done when it returns, so events have nothing to order.
class CpuDevice final : public Device {
 public:
  // `threads`: of ATen and of our kernels. Sets the process's thread count and its CPU allocator.
  explicit CpuDevice(int threads);

  const std::string& name() const override { return name_; }
  TrackingAllocator& allocator() override { return allocator_; }
  const OpFunctionTable& ops() const override { return CpuOpFunctions(); }
  void Copy(void* to, const void* from, int64_t bytes, int stream) override;
  void Zero(void* to, int64_t bytes, int stream) override;
  void Record(int /*event*/, int /*stream*/) override {}
  void Wait(int /*event*/, int /*stream*/) override {}
  absl::Status Synchronize() override { return absl::OkStatus(); }

 private:
  std::string name_ = "cpu:0";
  TrackingAllocator& allocator_;
};

// One piece of a device's memory, for as long as the object lives. Counted by its allocator.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  static absl::StatusOr<DeviceBuffer> Allocate(Device& device, int64_t bytes);

  char* data() const { return static_cast<char*>(memory_.get()); }
  int64_t bytes() const { return bytes_; }

 private:
  c10::DataPtr memory_;
  int64_t bytes_ = 0;
};

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_DEVICE_H_
