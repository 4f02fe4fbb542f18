// Calls of kernels/ from ops: number types, and their errors, which are mistakes of this program.
#ifndef WORKER_EXECUTE_OPS_KERNEL_CALL_H_
#define WORKER_EXECUTE_OPS_KERNEL_CALL_H_

#include <stdexcept>
#include <string>

#include "kernels/philox.h"
#include "kernels/types.h"
#include "worker/execute/op_run.h"
#include "worker/execute/view.h"

namespace snug::execute {

inline kernels::DType KernelType(program::DType dtype) {
  return dtype == program::DType::kF32 ? kernels::DType::kF32 : kernels::DType::kBF16;
}
inline kernels::DType KernelType(const View& view) { return KernelType(view.dtype); }

static_assert(program::kMostBlocks << program::kOpBits <= kernels::kMaxRandomOps);

// The op's own among the random draws of a run.
inline kernels::RandomSite RandomSiteOf(const OpRun& run) {
  const auto block = static_cast<uint32_t>(run.block);
  return {.seed = run.scalars.seed,
          .step = static_cast<uint32_t>(run.scalars.step),
          .micro_batch = static_cast<uint32_t>(run.scalars.micro_batch),
          .op = block << program::kOpBits | static_cast<uint32_t>(run.op_index)};
}

// Draws for a stash of the op's value are the op's, which may draw itself, in another half of the
// micro-batches.
inline kernels::RandomSite StashSiteOf(const OpRun& run) {
  kernels::RandomSite site = RandomSiteOf(run);
  site.micro_batch |= uint32_t{1} << 31;
  return site;
}

// Thrown like LibTorch's own errors; the executor turns it into a Status.
inline void Check(const char* kernel, kernels::Error error) {
  if (error.ok()) return;
  throw std::runtime_error(std::string(kernel) + ": " + kernels::ToString(error.code) + " (" +
                           error.parameter + ")");
}

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_OPS_KERNEL_CALL_H_
