// Norms of rows on CUDA: a warp a row, whatever its length, so that the order of the header can be
// followed: the 32 threads of a warp hold its 256 chains, eight each.
#include "kernels/row_norms.h"

#include "kernels/cuda/entries.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"

namespace snug::kernels::cuda {
namespace {

constexpr int kPerThread = kNormChains / kWarp;

// Of the chains of all threads: chain (k * kWarp + lane) * V + i lies in chains[k * V + i]. The
// tree adds chain j + 128 to j, then j + 64, ...
template <int V>
__device__ inline float AddChains(float (&chains)[kPerThread]) {
#pragma unroll
  for (int width = kPerThread / 2; width >= V; width /= 2) {
#pragma unroll
    for (int k = 0; k < width; ++k) chains[k] += chains[k + width];
  }
#pragma unroll
  for (int lane = kWarp / 2; lane > 0; lane /= 2) {
#pragma unroll
    for (int k = 0; k < V; ++k) chains[k] += __shfl_xor_sync(~0u, chains[k], lane);
  }
#pragma unroll
  for (int width = V / 2; width > 0; width /= 2) {
#pragma unroll
    for (int k = 0; k < width; ++k) chains[k] += chains[k + width];
  }
  return chains[0];
}

template <typename T, int V>
__global__ void __launch_bounds__(kMaxBlock) RowNormsKernel(RowNormsParams p) {
  constexpr int kAccesses = kPerThread / V, kRowsPerBlock = kMaxBlock / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t packs = p.C / V;
  for (int64_t row = int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / kWarp; row < p.N;
       row += int64_t{gridDim.x} * kRowsPerBlock) {
    const T* x = static_cast<const T*>(p.x) + row * p.x_stride;
    float chains[kPerThread] = {};
#pragma unroll 4  // Loads under way at once.
    for (int64_t first = lane; first < packs; first += kAccesses * kWarp) {
#pragma unroll
      for (int k = 0; k < kAccesses; ++k) {
        const int64_t pack = first + k * kWarp;
        if (pack >= packs) continue;
        const Floats<V> v = Load<V>(x + pack * V);
#pragma unroll
        for (int i = 0; i < V; ++i) chains[k * V + i] += v.at[i] * v.at[i];
      }
    }
    const float squares = AddChains<V>(chains);
    if (lane == 0) p.norms[row] = __fsqrt_rn(squares) * p.scale;
  }
}

}  // namespace

Error RowNorms(const RowNormsParams& p, Stream stream) {
  return ByPacks(p.dtype, p.C, {{p.x, p.x_stride, SizeOf(p.dtype)}}, [&](auto t, auto v) {
    return Launch(RowNormsKernel<decltype(t), decltype(v)::value>, {Ceil(p.N, kMaxBlock / kWarp)},
                  stream, p);
  });
}

}  // namespace snug::kernels::cuda
