// Quantising and dequantising on CUDA, and the ranges of groups.
#include "kernels/quantize.h"

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/entries.h"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/quantized.cuh"
#include "kernels/quantize_code.h"

namespace snug::kernels::cuda {
namespace {

// ---- ranges of groups ---------------------------------------------------------------------------

// A block of threads reduces a part of the rows in one group.

struct RangeGrid {
  int64_t groups, parts, rows_per_part;
  int64_t width, across;  // Columns of a group, and groups side by side.
  int across_bits;        // A block of threads is so many packs wide.
};

struct MinMax {
  float min, max, poison;
};

__device__ inline MinMax WarpMinMax(MinMax x) {
#pragma unroll
  for (int lane = kWarp / 2; lane > 0; lane /= 2) {
    x.min = fminf(x.min, __shfl_xor_sync(~0u, x.min, lane));
    x.max = fmaxf(x.max, __shfl_xor_sync(~0u, x.max, lane));
    x.poison += __shfl_xor_sync(~0u, x.poison, lane);
  }
  return x;
}

// Of all threads of the block, in thread 0.
__device__ inline MinMax BlockMinMax(MinMax x) {
  __shared__ MinMax warps[kMaxBlock / kWarp];
  x = WarpMinMax(x);
  __syncthreads();  // The one before has been read.
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = x;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < kMaxBlock / kWarp; ++i) {
      x.min = fminf(x.min, warps[i].min);
      x.max = fmaxf(x.max, warps[i].max);
      x.poison += warps[i].poison;
    }
  }
  return x;
}

// This thread's share of rows [begin, end) of a group that begins at column `column`.
template <typename T, int V>
__device__ inline void AddRows(const UpdateRangesParams& p, const RangeGrid& grid, const T* rows,
                               int64_t count, MinMax& all) {
  const int across = 1 << grid.across_bits, thread = static_cast<int>(threadIdx.x);
  for (int64_t i = thread >> grid.across_bits; i < count; i += kMaxBlock >> grid.across_bits) {
    const T* x = rows + i * p.x_stride;
    for (int64_t c = int64_t{thread & (across - 1)} * V; c < grid.width; c += int64_t{across} * V) {
      const Floats<V> v = Load<V>(x + c);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        all.min = fminf(all.min, v.at[k]);
        all.max = fmaxf(all.max, v.at[k]);
        all.poison += v.at[k] - v.at[k];
      }
    }
  }
}

template <typename T, int V>
__global__ void __launch_bounds__(kMaxBlock)
    ReduceRangesKernel(UpdateRangesParams p, RangeGrid grid) {
  const int64_t R = p.grouping.run_rows, row_groups = p.grouping.row_groups;
  const float infinity = FloatOfBits(kInfinityBits);
  for (int64_t unit = blockIdx.x; unit < grid.parts * grid.groups; unit += gridDim.x) {
    const int64_t part = unit / grid.groups, group = unit % grid.groups;
    const int64_t first = part * grid.rows_per_part, last = min(first + grid.rows_per_part, p.N);
    const T* x = static_cast<const T*>(p.x) + group % grid.across * grid.width;
    MinMax all = {infinity, -infinity, 0.0f};
    int64_t run = first / R;
    run += (group / grid.across - run % row_groups + row_groups) % row_groups;
    for (; run * R < last; run += row_groups) {
      const int64_t begin = max(run * R, first), end = min((run + 1) * R, last);
      AddRows<T, V>(p, grid, x + begin * p.x_stride, end - begin, all);
    }
    all = BlockMinMax(all);
    if (threadIdx.x == 0) static_cast<MinMax*>(p.workspace)[unit] = all;
  }
}

// A warp a group: the parts' results, then its state and range.
__global__ void __launch_bounds__(kMaxBlock)
    FinishRangesKernel(UpdateRangesParams p, RangeGrid grid) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warps = kMaxBlock / kWarp;
  const float infinity = FloatOfBits(kInfinityBits);
  for (int64_t group = int64_t{blockIdx.x} * warps + threadIdx.x / kWarp; group < grid.groups;
       group += int64_t{gridDim.x} * warps) {
    MinMax all = {infinity, -infinity, 0.0f};
    for (int64_t part = lane; part < grid.parts; part += kWarp) {
      const MinMax one = static_cast<const MinMax*>(p.workspace)[part * grid.groups + group];
      all.min = fminf(all.min, one.min);
      all.max = fmaxf(all.max, one.max);
      all.poison += one.poison;
    }
    all = WarpMinMax(all);
    if (lane == 0) {
      const float result[3] = {all.min, all.max, all.poison};
      UpdateGroup(p, group, result);
    }
  }
}

// ---- codes --------------------------------------------------------------------------------------

template <typename T, bool kWide>
__global__ void __launch_bounds__(kMaxBlock) QuantizeKernel(QuantizeParams p, ElementGrid grid) {
  ForElements(grid, [&](int64_t row, int64_t pack) {
    const EightAt at = {row, p.C, pack * kEight};
    const T* x = static_cast<const T*>(p.x) + row * p.x_stride;
    QuantizeEight<kWide>(p.to, p.dither, at, LoadEight<kWide>(x, at));
  });
}

template <typename T, bool kWide>
__global__ void __launch_bounds__(kMaxBlock)
    DequantizeKernel(DequantizeParams p, ElementGrid grid) {
  ForElements(grid, [&](int64_t row, int64_t pack) {
    const EightAt at = {row, p.C, pack * kEight};
    if (at.left() <= 0) return;
    T* y = static_cast<T*>(p.y) + row * p.y_stride;
    StoreEight<kWide>(y, at, DequantizeEight<kWide>(p.from, at));
  });
}

}  // namespace

Error UpdateRanges(const UpdateRangesParams& p, Stream stream) {
  RangeGrid grid = {};
  grid.groups = GroupsOf(p.grouping, p.C);
  grid.parts = RangeParts(p.N, grid.groups);
  grid.rows_per_part = Ceil(p.N, grid.parts);
  grid.width = GroupColumns(p.grouping, p.C);
  grid.across = p.C / grid.width;
  return ByPacks(p.dtype, grid.width, {{p.x, p.x_stride, SizeOf(p.dtype)}}, [&](auto t, auto v) {
    constexpr int V = decltype(v)::value;
    while (grid.across_bits < kMaxBlockBits && int64_t{V} << grid.across_bits < grid.width) {
      ++grid.across_bits;
    }
    const Error error =
        Launch(ReduceRangesKernel<decltype(t), V>, {grid.parts * grid.groups}, stream, p, grid);
    if (!error.ok()) return error;
    return Launch(FinishRangesKernel, {Ceil(grid.groups, kMaxBlock / kWarp)}, stream, p, grid);
  });
}

Error Quantize(const QuantizeParams& p, Stream stream) {
  const ElementGrid grid = ElementGridOf(p.N, EightsOf(p.C));
  return ByType(p.dtype, [&](auto t) {
    using T = decltype(t);
    const bool wide =
        Divides({p.x, p.x_stride, SizeOf(p.dtype)}, p.C, kEight) && DividesCodes(p.to, p.C);
    return Launch(wide ? QuantizeKernel<T, true> : QuantizeKernel<T, false>, {grid.blocks}, stream,
                  p, grid);
  });
}

Error Dequantize(const DequantizeParams& p, Stream stream) {
  const ElementGrid grid = ElementGridOf(p.N, EightsOf(p.C));
  return ByType(p.dtype, [&](auto t) {
    using T = decltype(t);
    const bool wide =
        Divides({p.y, p.y_stride, SizeOf(p.dtype)}, p.C, kEight) && DividesCodes(p.from, p.C);
    return Launch(wide ? DequantizeKernel<T, true> : DequantizeKernel<T, false>, {grid.blocks},
                  stream, p, grid);
  });
}

}  // namespace snug::kernels::cuda
