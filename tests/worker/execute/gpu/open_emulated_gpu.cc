// gpu:0 of a worker or a probe is an emulated GPU: what links this runs as it would on a GPU, but
// for time. SNUG_EMULATED_LEAK=BYTES in its environment: something takes so much that nobody
// counts.
#include <ATen/Parallel.h>

#include <cstdlib>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/worker/execute/gpu/emulated_runtime.h"
#include "tests/worker/execute/gpu/test_gpu.h"
#include "worker/execute/gpu/measure_context.h"

namespace snug::execute {

absl::StatusOr<std::unique_ptr<Device>> OpenGpu(const std::string& name, int index, int threads) {
  if (index != 0)
    return absl::FailedPreconditionError(absl::StrCat(name, ": the emulation has gpu:0 alone"));
  at::set_num_threads(threads);
  std::unique_ptr<GpuDevice> gpu = OpenTestGpu();
  const char* leak = std::getenv("SNUG_EMULATED_LEAK");
  int64_t bytes = 0;
  if (leak != nullptr && absl::SimpleAtoi(leak, &bytes))
    static_cast<EmulatedRuntime&>(gpu->runtime()).Leak(bytes);
  return gpu;
}

// Some bytes, so that they are seen to be counted: the emulation itself takes none.
absl::StatusOr<ChildMemory> GpuContextBytes(const std::string& /*name*/,
                                            absl::FunctionRef<absl::Status(Device&)> /*use*/) {
  return ChildMemory{.taken_bytes = 1 << 20, .unseen_bytes = 1 << 20};
}

}  // namespace snug::execute
