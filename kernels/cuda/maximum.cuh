// The largest number that the threads of a warp or a block have; NaN is passed over.
#ifndef KERNELS_CUDA_MAXIMUM_CUH_
#define KERNELS_CUDA_MAXIMUM_CUH_

#include "kernels/cuda/launch.cuh"

namespace snug::kernels::cuda {

__device__ inline float WarpMax(float x) {
#pragma unroll
  for (int lane = kWarp / 2; lane > 0; lane /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, lane));
  return x;
}

__device__ inline float BlockMax(float x) {
  __shared__ float warps[kWarp];
  x = WarpMax(x);
  __syncthreads();  // The maximum before has been read by all.
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = x;
  __syncthreads();
  for (int i = 0; i < static_cast<int>(blockDim.x) / kWarp; ++i) x = fmaxf(x, warps[i]);
  return x;
}

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_MAXIMUM_CUH_
