// Columns by id on CUDA. Adding: the warp of an id's first token adds up all of that id, so that no
// two threads meet and the order is that of the rows; its lanes share the comparisons of ids.
#include "kernels/columns.h"

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/entries.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/team.cuh"

namespace snug::kernels::cuda {
namespace {

__global__ void __launch_bounds__(kMaxBlock)
    GatherColumnsKernel(ColumnsParams p, ElementGrid grid) {
  ForElements(grid, [&](int64_t i, int64_t r) {
    p.y[i * p.y_stride + r] = p.x[r * p.x_stride + p.ids[i]];
  });
}

// Which of the tokens [first, first + 32) have this id, as bits: the same in all lanes.
__device__ inline unsigned MatesOf(const ColumnsParams& p, int32_t id, int64_t first, int64_t end) {
  const int64_t i = first + threadIdx.x % kWarp;
  return __ballot_sync(~0u, i < end && p.ids[i] == id);
}

__device__ inline bool IsFirst(const ColumnsParams& p, int64_t i) {
  for (int64_t first = 0; first < i; first += kWarp) {
    if (MatesOf(p, p.ids[i], first, i) != 0) return false;
  }
  return true;
}

constexpr int kSums = 4;  // Of a lane, in one pass over the ids.

__global__ void __launch_bounds__(kMaxBlock) AddColumnsKernel(ColumnsParams p) {
  const Team<false> warp;
  for (int64_t i = warp.row; i < p.N; i += warp.rows_apart) {
    if (!IsFirst(p, i)) continue;
    const int32_t id = p.ids[i];
    for (int64_t r = warp.thread; r - warp.thread < p.R; r += kSums * kWarp) {
      float* x = p.x + r * p.x_stride + id;
      float sum[kSums];
#pragma unroll
      for (int k = 0; k < kSums; ++k) {
        sum[k] = r + k * kWarp < p.R ? x[k * kWarp * p.x_stride] : 0.0f;
      }
      for (int64_t first = i; first < p.N; first += kWarp) {
        for (unsigned mates = MatesOf(p, id, first, p.N); mates != 0; mates &= mates - 1) {
          const float* y = p.y + (first + __ffs(static_cast<int>(mates)) - 1) * p.y_stride + r;
#pragma unroll
          for (int k = 0; k < kSums; ++k) sum[k] += r + k * kWarp < p.R ? y[k * kWarp] : 0.0f;
        }
      }
#pragma unroll
      for (int k = 0; k < kSums; ++k) {
        if (r + k * kWarp < p.R) x[k * kWarp * p.x_stride] = sum[k];
      }
    }
  }
}

}  // namespace

Error GatherColumns(const ColumnsParams& p, Stream stream) {
  const ElementGrid grid = ElementGridOf(p.N, p.R);
  return Launch(GatherColumnsKernel, {grid.blocks}, stream, p, grid);
}

Error AddColumns(const ColumnsParams& p, Stream stream) {
  return Launch(AddColumnsKernel, {Ceil(p.N, kMaxBlock / kWarp), kMaxBlock}, stream, p);
}

}  // namespace snug::kernels::cuda
