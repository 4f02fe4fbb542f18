// A GPU as the worker uses it. Its numbers for streams and events become the runtime's, made at
// their first use; stream 0 is one like the others.
//
// cuBLAS has no product of fp32 operands into bf16. Such a one is summed part by part in fp32, in
// memory of kStagedProductBytes that the stream keeps, and each part is rounded once; that memory
// is part of the context, as cuBLAS's own is.
//
// What the host has in memory of its own goes to the GPU by way of two pieces of pinned memory, one
// of which is filled while the other is on its way: such a copy returns when all has been read.
//
// Invariants: every byte of the GPU's memory that the attempt takes goes through allocator(); what
// the runtime's libraries take by themselves is part of the context (measure_context.h). Host code
// never looks into that memory. Called by one thread.
#ifndef WORKER_EXECUTE_GPU_GPU_DEVICE_H_
#define WORKER_EXECUTE_GPU_GPU_DEVICE_H_

#include <array>
#include <map>
#include <memory>
#include <string>

#include "worker/execute/device.h"
#include "worker/execute/gpu/runtime.h"

namespace snug::execute {

// Enough rows of a part for a product to run at full speed: 256 of 4,096 columns.
inline constexpr int64_t kStagedProductBytes = 4 << 20;

// Of a pinned piece: execute/host_copy.h reads files by as many.
inline constexpr int64_t kPinnedPieceBytes = 4 << 20;
// Up to here CUDA takes a copy for itself and returns.
inline constexpr int64_t kLeastStagedBytes = 64 << 10;

class GpuDevice : public Device {
 public:
  // `ops` must outlive the device.
  GpuDevice(std::string name, int threads, std::unique_ptr<GpuRuntime> runtime,
            const OpFunctionTable& ops);
  ~GpuDevice() override;

  const std::string& name() const override { return name_; }
  program::Machine machine() const override { return {.threads = threads_, .cpu = false}; }
  TrackingAllocator& allocator() override { return allocator_; }
  const OpFunctionTable& ops() const override { return ops_; }
  bool host_reads_memory() const override { return false; }
  bool rounds_products() const override { return true; }
  kernels::Stream stream(int number) override;

  void Copy(void* to, const void* from, int64_t bytes, int stream) override;
  void CopyAsync(void* to, const void* from, int64_t bytes, int stream) override;
  void Fill(void* to, int byte, int64_t bytes, int stream) override;
  // Throws std::runtime_error where nothing has recorded the event: CUDA would not wait at all.
  void Wait(int event, int stream) override;
  void Record(int event, int stream) override;
  void Multiply(const GemmCall& call, int stream) override;
  absl::Status Synchronize() override;
  int64_t SeenBytes() override { return free_at_first_ - runtime_->memory().free_bytes; }
  void* AllocateHost(int64_t bytes) override { return runtime_->AllocateHost(bytes); }
  void FreeHost(void* address, int64_t /*bytes*/) noexcept override { runtime_->FreeHost(address); }

  GpuRuntime& runtime() { return *runtime_; }

 private:
  void MultiplyIntoBf16(const GemmCall& call, int stream);
  float* StagingOf(int stream);
  // Through the pinned pieces, in the stream's order. False: the host has no memory for them.
  bool CopyFromHost(char* to, const char* from, int64_t bytes, int stream);

  const std::string name_;
  const int threads_;
  const std::unique_ptr<GpuRuntime> runtime_;
  const int64_t free_at_first_;  // With the context, and nothing in it.
  const OpFunctionTable& ops_;
  TrackingAllocator allocator_;
  std::map<int, kernels::Stream> streams_;
  struct Event {
    GpuEvent event = nullptr;
    bool recorded = false;  // Since the last Synchronize.
  };
  std::map<int, Event> events_;
  std::map<int, float*> staging_;  // By stream.
  struct PinnedPiece {
    void* memory = nullptr;
    GpuEvent sent = nullptr;  // Behind the copy of what is in it.
  };
  std::array<PinnedPiece, 2> pinned_;  // Taken at their first use. The one to be filled is first.
};

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_GPU_GPU_DEVICE_H_
