// The CPU as a device.
#ifndef WORKER_EXECUTE_CPU_DEVICE_H_
#define WORKER_EXECUTE_CPU_DEVICE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "worker/execute/cpu_streams.h"
#include "worker/execute/device.h"

namespace snug::execute {

// cpu:0. Ops and what else is called on stream 0 are done when the call returns. CopyAsync, Issue
// and events know other streams, each of which is a thread; ops there run on as many threads as on
// stream 0, as the order in which products are summed depends on their number.
class CpuDevice final : public Device {
 public:
  // `threads`: of ATen and of our kernels. Sets the process's thread count and its CPU allocator.
  // `before_each`: what the thread of another stream than 0 does before each copy and each op;
  // tests delay these by it.
  explicit CpuDevice(int threads, CpuStreams::Task before_each = {});

  const std::string& name() const override { return name_; }
  program::Machine machine() const override;
  TrackingAllocator& allocator() override { return allocator_; }
  const OpFunctionTable& ops() const override { return OpFunctionsOfKernels(); }
  bool host_reads_memory() const override { return true; }
  kernels::Stream stream(int /*number*/) override { return nullptr; }
  void Copy(void* to, const void* from, int64_t bytes, int stream) override;
  void CopyAsync(void* to, const void* from, int64_t bytes, int stream) override;
  void Fill(void* to, int byte, int64_t bytes, int stream) override;
  void Issue(int stream, const std::function<void()>& run) override;
  void Record(int event, int stream) override { streams_.Record(event, stream); }
  void Wait(int event, int stream) override { streams_.Wait(event, stream); }
  void Multiply(const GemmCall& call, int /*stream*/) override { Gemm(call); }
  bool rounds_products() const override { return false; }
  absl::Status Synchronize() override;
  void ReturnFreeMemory() override;

 private:
  std::string name_ = "cpu:0";
  const int threads_;
  TrackingAllocator& allocator_;
  CpuStreams streams_;
};

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_CPU_DEVICE_H_
