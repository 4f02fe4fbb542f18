// A GPU by cudart and cuBLAS. One object per process: it chooses the process's device.
#ifndef WORKER_EXECUTE_GPU_CUDA_RUNTIME_H_
#define WORKER_EXECUTE_GPU_CUDA_RUNTIME_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/execute/gpu/runtime.h"

namespace snug::execute {

// Of the device that CUDA numbers `ordinal` among those that the process sees. FailedPrecondition:
// there is no driver, or no such device, or it is older than what the kernels are compiled for.
absl::StatusOr<std::unique_ptr<GpuRuntime>> OpenCudaRuntime(int ordinal);

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_GPU_CUDA_RUNTIME_H_
