// What a worker takes of a GPU beside what it holds of a job: CUDA's context, cuBLAS and its
// workspaces, the code of kernels.
#ifndef WORKER_EXECUTE_GPU_MEASURE_CONTEXT_H_
#define WORKER_EXECUTE_GPU_MEASURE_CONTEXT_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/execute/device.h"
#include "worker/execute/gpu/child_memory.h"

namespace snug::execute {

// Of "gpu:N", as a child process takes it (child_memory.h), which opens the device and calls `use`:
// CUDA loads each kernel at its first launch, and libraries take memory at their first call. Two
// contexts at once, the child's and the observer's: a GPU in exclusive-process mode refuses. Forks:
// before anything else. Null in a worker without GPUs.
[[gnu::weak]] absl::StatusOr<ChildMemory> GpuContextBytes(
    const std::string& name, absl::FunctionRef<absl::Status(Device&)> use);

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_GPU_MEASURE_CONTEXT_H_
