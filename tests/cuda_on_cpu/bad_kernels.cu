// Kernels with one mistake each, and the same without it: what the emulation must catch.
#include "tests/cuda_on_cpu/bad_kernels.h"

#include <cuda_runtime.h>

namespace snug::cuda_on_cpu {
namespace {

constexpr int kThreads = 64;

// The sum of each block's elements by a tree in shared memory.
__global__ void TreeSum(const float* x, float* sums, bool barrier) {
  __shared__ float part[kThreads];
  part[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    if (barrier) __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}

__global__ void Double(float* x, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= 2.0f;
}

__global__ void Copy(const float* x, float* y, int n) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += blockDim.x) y[i] = x[i];
}

__global__ void WarpSum(float* x, int lanes) {
  float sum = x[threadIdx.x];
  if (static_cast<int>(threadIdx.x) >= lanes) return;
  for (int bit = 16; bit > 0; bit /= 2) sum += __shfl_xor_sync(~0u, sum, bit);
  x[threadIdx.x] = sum;
}

__global__ void TwoBranches(float* x, int lanes) {
  float from = 0.0f;
  if (static_cast<int>(threadIdx.x) < lanes) {
    from = __shfl_xor_sync(~0u, x[threadIdx.x], 1);
  } else {
    from = __shfl_xor_sync(~0u, x[threadIdx.x], 2);
  }
  x[threadIdx.x] += from;
}

// x[0] counts readers: with a barrier of the warp all its lanes have read before lane 0 writes.
__global__ void CountReaders(float* x, WarpFence fence) {
  float readers = x[0] + 1.0f;
  for (int bit = 16; bit > 0; bit /= 2) readers += __shfl_xor_sync(~0u, readers, bit);
  if (fence == WarpFence::kVote) (void)__any_sync(~0u, 1);
  if (fence == WarpFence::kHalf && threadIdx.x % 32 < 16) __syncwarp(0xffffu);
  if (fence == WarpFence::kWarp) __syncwarp();
  if (threadIdx.x == 0) x[0] = readers;
}

// Each lane reads what its neighbour has put into shared memory.
__global__ void Neighbours(float* x, WarpFence fence) {
  __shared__ float part[32];
  part[threadIdx.x] = x[threadIdx.x];
  const float any = __shfl_sync(~0u, 0.0f, 0);
  if (fence == WarpFence::kVote) (void)__ballot_sync(~0u, 1);
  if (fence == WarpFence::kWarp) __syncwarp();
  x[threadIdx.x] = part[threadIdx.x ^ 1] + any;
}

constexpr int kBound = 96;
__global__ void __launch_bounds__(kBound, 2) Bounded(float* x) { x[threadIdx.x] = 1.0f; }
template <int kWarps>
__global__ void __launch_bounds__(32 * kWarps) BoundedByWarps(float* x) {
  x[threadIdx.x] = 1.0f;
}
__global__ void Unbounded(float* x) { x[threadIdx.x] = 1.0f; }

__global__ void EarlyExit(float* x, int threads) {
  if (static_cast<int>(threadIdx.x) >= threads) return;
  __syncthreads();
  x[threadIdx.x] = 1.0f;
}

__global__ void ReadUnwritten(float* x, int written) {
  __shared__ float part[kThreads];
  if (static_cast<int>(threadIdx.x) < written) part[threadIdx.x] = 1.0f;
  __syncthreads();
  x[threadIdx.x] = part[threadIdx.x ^ 1];
}

__global__ void SameElement(float* x, bool atomic) {
  if (atomic) {
    atomicAdd(x, 1.0f);
  } else {
    x[0] += 1.0f;
  }
}

__global__ void WideRead(const float* x, float* y, int offset) {
  const float4 four = *reinterpret_cast<const float4*>(x + offset);
  y[threadIdx.x] = four.x + four.y + four.z + four.w;
}

template <typename... Parameters, typename... Arguments>
bool Launch(void (*kernel)(Parameters...), unsigned blocks, unsigned threads,
            Arguments... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  return cudaLaunchKernelEx(&config, kernel, arguments...) == cudaSuccess;
}

}  // namespace

bool RunTreeSum(const float* x, float* sums, int blocks, bool barrier) {
  return Launch(TreeSum, blocks, kThreads, x, sums, barrier);
}
bool RunDouble(float* x, int64_t n, int threads) { return Launch(Double, 1, threads, x, n); }
bool RunWarpSum(float* x, int lanes) { return Launch(WarpSum, 1, 32, x, lanes); }
bool RunTwoBranches(float* x, int lanes) { return Launch(TwoBranches, 1, 32, x, lanes); }
bool RunCountReaders(float* x, int threads, WarpFence fence) {
  return Launch(CountReaders, 1, threads, x, fence);
}
bool RunNeighbours(float* x, WarpFence fence) { return Launch(Neighbours, 1, 32, x, fence); }
bool RunBounded(float* x, int threads) { return Launch(Bounded, 1, threads, x); }
bool RunBoundedByWarps(float* x, int threads) { return Launch(BoundedByWarps<2>, 1, threads, x); }
bool RunUnbounded(float* x, int threads) { return Launch(Unbounded, 1, threads, x); }
bool RunCopy(const float* x, float* y, int n) { return Launch(Copy, 1, kThreads, x, y, n); }
bool RunEarlyExit(float* x, int threads) { return Launch(EarlyExit, 1, kThreads, x, threads); }
bool RunReadUnwritten(float* x, int written) {
  return Launch(ReadUnwritten, 1, kThreads, x, written);
}
bool RunSameElement(float* x, bool atomic) { return Launch(SameElement, 2, kThreads, x, atomic); }
bool RunWideRead(const float* x, float* y, int offset) {
  return Launch(WideRead, 1, 1, x, y, offset);
}

}  // namespace snug::cuda_on_cpu
