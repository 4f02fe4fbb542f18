// ATen's allocator on the GPU: whatever ATen takes there comes from a TrackingAllocator, inside an
// op from the op's slice. No cache: an arena and slices leave nothing to cache.
#ifndef WORKER_EXECUTE_GPU_TORCH_ALLOCATOR_H_
#define WORKER_EXECUTE_GPU_TORCH_ALLOCATOR_H_

#include "worker/execute/allocator.h"

namespace snug::execute {

// Gives it to ATen for as long as the object lives. What ATen still holds then is not given back.
// Before ATen's first use of a GPU in this process (else it throws c10::Error); one at a time.
class TorchAllocator {
 public:
  explicit TorchAllocator(TrackingAllocator& allocator);
  TorchAllocator(const TorchAllocator&) = delete;
  TorchAllocator& operator=(const TorchAllocator&) = delete;
  ~TorchAllocator();
};

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_GPU_TORCH_ALLOCATOR_H_
