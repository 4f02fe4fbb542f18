// Rows of a matrix divided among teams of threads: a warp a row where rows are short, a block a row
// where they are long. A thread holds its packs of the row in registers, so that each element is
// read once.
#ifndef KERNELS_CUDA_TEAM_CUH_
#define KERNELS_CUDA_TEAM_CUH_

#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace snug::kernels::cuda {

template <typename F>
__device__ inline F WarpSum(F x) {
#pragma unroll
  for (int lane = kWarp / 2; lane > 0; lane /= 2) x += __shfl_xor_sync(~0u, x, lane);
  return x;
}

// Of all threads of the block, the same bits in each; order fixed, so that results are too.
template <typename F>
__device__ inline F BlockSum(F x) {
  __shared__ F warps[kWarp];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  x = WarpSum(x);
  __syncthreads();  // The sum before has been read by all.
  if (threadIdx.x % kWarp == 0) warps[warp] = x;
  __syncthreads();
  F sum = 0;
  for (int i = 0; i < static_cast<int>(blockDim.x) / kWarp; ++i) sum += warps[i];
  return sum;
}

// K such sums at once.
template <int K>
__device__ inline void BlockSums(float (&x)[K]) {
  __shared__ float warps[K][kWarp];
#pragma unroll
  for (int k = 0; k < K; ++k) x[k] = WarpSum(x[k]);
  __syncthreads();  // The sums before have been read by all.
  if (threadIdx.x % kWarp == 0) {
#pragma unroll
    for (int k = 0; k < K; ++k) warps[k][threadIdx.x / kWarp] = x[k];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < K; ++k) x[k] = 0.0f;
  for (int i = 0; i < static_cast<int>(blockDim.x) / kWarp; ++i) {
#pragma unroll
    for (int k = 0; k < K; ++k) x[k] += warps[k][i];
  }
}

// Threads [0, threads) share a row of `packs` packs; thread t has packs t, t + threads, ...
template <bool kWholeBlock>
struct Team {
  int64_t row, rows_apart;
  int thread, threads;

  __device__ Team() {
    if (kWholeBlock) {
      thread = static_cast<int>(threadIdx.x);
      threads = static_cast<int>(blockDim.x);
      row = blockIdx.x;
      rows_apart = gridDim.x;
    } else {
      const int warps = static_cast<int>(blockDim.x) / kWarp;
      thread = static_cast<int>(threadIdx.x) % kWarp;
      threads = kWarp;
      row = int64_t{blockIdx.x} * warps + static_cast<int>(threadIdx.x) / kWarp;
      rows_apart = int64_t{gridDim.x} * warps;
    }
  }
  template <typename F>
  __device__ F Sum(F x) const {
    return kWholeBlock ? BlockSum(x) : WarpSum(x);
  }
};

// Packs of a row that a thread holds in registers; those beyond are read again.
inline constexpr int kHeld = 4;
inline constexpr int64_t kWarpRowPacks = kWarp * kHeld;

// body(k, pack) for each pack of the row that is this thread's. The first kHeld have k = 0, 1, ...,
// known when compiling, so that arrays indexed by it stay in registers; the rest has k = kHeld.
template <typename AnyTeam, typename Body>
__device__ inline void ForPacks(const AnyTeam& team, int64_t packs, const Body& body) {
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
    const int64_t pack = team.thread + int64_t{k} * team.threads;
    if (pack < packs) body(k, pack);
  }
  for (int64_t pack = team.thread + int64_t{kHeld} * team.threads; pack < packs;
       pack += team.threads) {
    body(kHeld, pack);
  }
}

// Launches a kernel on N rows: `by_warp` where a warp holds a row, else `by_block`.
template <typename Params>
inline Error LaunchRows(void (*by_warp)(Params), void (*by_block)(Params), int64_t packs,
                        Stream stream, const Params& p) {
  if (packs <= kWarpRowPacks) {
    return Launch(by_warp, {Ceil(p.N, kMaxBlock / kWarp), kMaxBlock}, stream, p);
  }
  int threads = kWarp;
  while (threads < kMaxBlock && threads * kHeld < packs) threads *= 2;
  return Launch(by_block, {p.N, threads}, stream, p);
}

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_TEAM_CUH_
