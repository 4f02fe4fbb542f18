// gpu:0 of a worker or a probe is an emulated GPU: what links this runs as it would on a GPU, but
// for time.
#include <ATen/Parallel.h>

#include "absl/strings/str_cat.h"
#include "tests/worker/execute/gpu/test_gpu.h"
#include "worker/execute/gpu/measure_context.h"

namespace snug::execute {

absl::StatusOr<std::unique_ptr<Device>> OpenGpu(const std::string& name, int index, int threads) {
  if (index != 0)
    return absl::FailedPreconditionError(absl::StrCat(name, ": the emulation has gpu:0 alone"));
  at::set_num_threads(threads);
  return OpenTestGpu();
}

// Some bytes, so that they are seen to be counted: the emulation itself takes none.
absl::StatusOr<int64_t> GpuContextBytes(const std::string& /*name*/) { return 1 << 20; }

}  // namespace snug::execute
