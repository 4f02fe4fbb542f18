// The one way in which kernels are launched, and the grids they are launched on.
#ifndef KERNELS_CUDA_LAUNCH_CUH_
#define KERNELS_CUDA_LAUNCH_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/types.h"

namespace snug::kernels::cuda {

inline constexpr int kWarp = 32;
// Threads of a block; enough blocks fit a multiprocessor at this size.
inline constexpr int kMaxBlockBits = 8, kMaxBlock = 1 << kMaxBlockBits;
// Blocks at once that a kernel with much in registers asks for: 128 registers per thread.
inline constexpr int kFewBlocks = 2;

struct Grid {
  int64_t blocks = 0;  // Kernels whose work may need more than kMaxBlocks step over it.
  int threads = kMaxBlock;
};
inline constexpr int64_t kMaxBlocks = (int64_t{1} << 31) - 1;

inline int64_t Ceil(int64_t n, int64_t d) { return (n + d - 1) / d; }

// Of the current device; for kernels that take as many blocks as it runs at once. What they compute
// does not depend on it.
inline int64_t Multiprocessors() {
  int device = 0, count = 0;
  if (cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) == cudaSuccess) {
    return count;
  }
  cudaGetLastError();
  return 1;
}

// Never on the default stream: `stream` is not null here.
template <typename... Parameters, typename... Arguments>
Error Launch(void (*kernel)(Parameters...), Grid grid, Stream stream,
             const Arguments&... arguments) {
  if (grid.blocks == 0) return {};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(grid.blocks < kMaxBlocks ? grid.blocks : kMaxBlocks));
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.stream = reinterpret_cast<cudaStream_t>(stream);
  if (cudaLaunchKernelEx(&config, kernel, arguments...) == cudaSuccess) return {};
  cudaGetLastError();  // Else the next one who asks would take this error for its own.
  return {ErrorCode::kLaunchFailed, "stream"};
}

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_LAUNCH_CUH_
