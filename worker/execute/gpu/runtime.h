// What GpuDevice asks of a GPU: a thin layer over CUDA, so that tests can put an emulation in its
// place (tests/worker/execute/gpu). Adds no order, no caching and no counting of its own.
//
// Functions throw std::runtime_error with the name of the call that failed, the error's name and
// the GPU's own text, unless they say otherwise, and CapExceeded where what failed is that the GPU
// has no memory left. After an error in a kernel every later call throws the same one: what the GPU
// holds of the process is lost, and with it the attempt.
#ifndef WORKER_EXECUTE_GPU_RUNTIME_H_
#define WORKER_EXECUTE_GPU_RUNTIME_H_

#include <cstdint>

#include "kernels/types.h"
#include "worker/execute/gemm.h"

namespace snug::execute {

using GpuEvent = struct GpuEventHandle*;

class GpuRuntime {
 public:
  struct MemoryInfo {
    int64_t free_bytes = 0;
    int64_t total_bytes = 0;
  };

  virtual ~GpuRuntime() = default;

  // Of the whole GPU, other processes' too.
  virtual MemoryInfo memory() = 0;
  // A multiple of 256, or null when there is no more.
  virtual void* Allocate(int64_t bytes) = 0;
  // Behind everything that was issued. Never throws: what failed shows in Synchronize.
  virtual void Free(void* address) noexcept = 0;
  virtual bool IsDeviceMemory(const void* address) = 0;
  // Pinned memory of the host, or null when there is no more.
  virtual void* AllocateHost(int64_t bytes) = 0;
  virtual void FreeHost(void* address) noexcept = 0;

  // None is the default stream, which would wait for the others and they for it.
  virtual kernels::Stream MakeStream() = 0;
  virtual GpuEvent MakeEvent() = 0;

  // Between any two of the GPU's memory and the host's, which is read and written at any time until
  // SynchronizeStream. (From pageable memory a driver mostly takes its own copy first. Where the
  // GPU reads that memory by itself, through HMM or ATS, it need not.)
  virtual void Copy(void* to, const void* from, int64_t bytes, kernels::Stream stream) = 0;
  virtual void Fill(void* to, int byte, int64_t bytes, kernels::Stream stream) = 0;
  virtual void Record(GpuEvent event, kernels::Stream stream) = 0;
  virtual void Wait(GpuEvent event, kernels::Stream stream) = 0;
  // What cuBLAS takes: fp32 operands into fp32, bf16 ones into either; element-aligned operands
  // whose strides are no shorter than their rows.
  virtual void Multiply(const GemmCall& call, kernels::Stream stream) = 0;

  // Until what was recorded last has been reached; at once where nothing was.
  virtual void AwaitEvent(GpuEvent event) = 0;
  virtual void SynchronizeStream(kernels::Stream stream) = 0;
  // All streams. Throws as well what a launch left behind.
  virtual void Synchronize() = 0;
};

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_GPU_RUNTIME_H_
