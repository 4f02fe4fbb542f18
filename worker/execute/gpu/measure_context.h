// What a worker takes of a GPU before it holds anything of a job: CUDA's context, cuBLAS and its
// workspace, the code of kernels.
#ifndef WORKER_EXECUTE_GPU_MEASURE_CONTEXT_H_
#define WORKER_EXECUTE_GPU_MEASURE_CONTEXT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace snug::execute {

// Of "gpu:N", as a child process takes it (child_memory.h), which opens the device, multiplies in
// each type and runs attention forward and backward. CUDA loads each kernel at its first launch, so
// what a job's other kernels add comes on top. Two contexts at once, the child's and the
// observer's: a GPU in exclusive-process mode refuses. Forks: before anything else. Null in a
// worker without GPUs.
[[gnu::weak]] absl::StatusOr<int64_t> GpuContextBytes(const std::string& name);

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_GPU_MEASURE_CONTEXT_H_
