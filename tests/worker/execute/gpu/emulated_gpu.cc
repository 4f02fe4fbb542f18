#include "tests/worker/execute/gpu/emulated_runtime.h"
#include "tests/worker/execute/gpu/test_gpu.h"

namespace snug::execute {

std::unique_ptr<GpuDevice> OpenTestGpu(Ahead ahead) {
  constexpr int64_t kMemoryBytes = int64_t{1} << 30;
  auto runtime = std::make_unique<EmulatedRuntime>(kMemoryBytes);
  runtime->set_order(ahead == Ahead::kFirstStream ? EmulatedRuntime::Order::kFirstMadeFirst
                                                  : EmulatedRuntime::Order::kLastMadeFirst);
  return std::make_unique<GpuDevice>("gpu:0", /*threads=*/2, std::move(runtime),
                                     OpFunctionsOfKernels());
}

}  // namespace snug::execute
