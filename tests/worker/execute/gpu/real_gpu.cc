#include <cstdlib>
#include <iostream>

#include "tests/worker/execute/gpu/test_gpu.h"
#include "worker/execute/gpu/cuda_runtime.h"

namespace snug::execute {

std::unique_ptr<GpuDevice> OpenTestGpu(Ahead /*ahead*/) {
  auto runtime = OpenCudaRuntime(0);
  if (!runtime.ok()) {
    std::cerr << runtime.status() << std::endl;
    std::abort();
  }
  return std::make_unique<GpuDevice>("gpu:0", /*threads=*/2, *std::move(runtime),
                                     OpFunctionsOfKernels());
}

}  // namespace snug::execute
