// NF4 weights on CUDA.
#include "kernels/nf4.h"

#include "kernels/cuda/code_packs.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/entries.h"
#include "kernels/cuda/frozen_weight.cuh"
#include "kernels/cuda/maximum.cuh"
#include "kernels/nf4_levels.h"

namespace snug::kernels::cuda {
namespace {

static const __constant__ Nf4Bounds nf4_bounds = kNf4Bounds;

// A warp a block of 64: a lane has two elements, one byte.
template <typename T>
__global__ void __launch_bounds__(kMaxBlock)
    QuantizeBlocksKernel(QuantizeNf4Params p, float* absmax) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t n = p.N * p.K, warps = kMaxBlock / kWarp;
  for (int64_t block = blockIdx.x * warps + threadIdx.x / kWarp; block < Nf4Blocks(n);
       block += gridDim.x * warps) {
    const int64_t e = block * kNf4Block + 2 * lane;
    const T* w = static_cast<const T*>(p.w);
    float x[2] = {};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (e + i < n) x[i] = Widen(w[(e + i) / p.K * p.w_stride + (e + i) % p.K]);
    }
    const float most = WarpMax(fmaxf(fabsf(x[0]), fabsf(x[1])));
    if (lane == 0) absmax[block] = most;
    const float inverse = InverseOf(most);
    const uint32_t high = Nf4Code(nf4_bounds, x[0] * inverse);
    const uint32_t low = Nf4Code(nf4_bounds, x[1] * inverse);
    if (e < n) static_cast<uint8_t*>(p.to.codes)[e / 2] = static_cast<uint8_t>(high << 4 | low);
  }
}

__global__ void __launch_bounds__(kMaxBlock)
    SumGroupsKernel(QuantizeNf4Params p, const float* absmax, double* sums) {
  const int64_t n = p.N * p.K, g = int64_t{blockIdx.x} * kMaxBlock + threadIdx.x;
  if (g < Nf4Groups(n)) sums[g] = Nf4GroupSum(absmax + g * kNf4Group, Nf4GroupSize(n, g));
}

// One thread, in the order of the definition on the CPU.
__global__ void OffsetKernel(QuantizeNf4Params p, const double* sums) {
  const int64_t n = p.N * p.K;
  double sum = 0.0;
  for (int64_t g = 0; g < Nf4Groups(n); ++g) sum += sums[g];
  *p.to.offset = static_cast<float>(sum / static_cast<double>(Nf4Blocks(n)));
}

__global__ void __launch_bounds__(kMaxBlock)
    QuantizeGroupsKernel(QuantizeNf4Params p, const float* absmax) {
  const int64_t g = int64_t{blockIdx.x} * kMaxBlock + threadIdx.x;
  if (g < Nf4Groups(p.N * p.K)) QuantizeNf4Group(p, dynamic_map, absmax, g);
}

// kWide: rows begin at multiples of eight elements, and so do blocks.
template <typename T, bool kWide>
__global__ void __launch_bounds__(kMaxBlock)
    DequantizeNf4Kernel(DequantizeNf4Params p, ElementGrid grid) {
  ForElements(grid, [&](int64_t row, int64_t pack) {
    const EightAt at = {row, p.K, pack * kEight};
    const int64_t e = row * p.K + at.c;
    Floats<kEight> values = {};
    if constexpr (kWide) {
      values = Nf4Values<kEight>(p.from, e);
    } else {
#pragma unroll
      for (int i = 0; i < kEight; ++i) {
        if (i < at.left()) values.at[i] = Nf4Value(p.from, e + i);
      }
    }
    StoreEight<kWide>(static_cast<T*>(p.w) + row * p.w_stride, at, values);
  });
}

}  // namespace

Error QuantizeNf4(const QuantizeNf4Params& p, Stream stream) {
  const int64_t n = p.N * p.K, groups = Nf4Groups(n);
  const bool nested = p.to.absmax_codes != nullptr;
  auto* sums = static_cast<double*>(p.workspace);
  float* absmax = nested ? reinterpret_cast<float*>(sums + groups) : p.to.absmax;
  Error error = ByType(p.dtype, [&](auto t) {
    return Launch(QuantizeBlocksKernel<decltype(t)>, {Ceil(Nf4Blocks(n), kMaxBlock / kWarp)},
                  stream, p, absmax);
  });
  if (!error.ok() || !nested) return error;
  const Grid each = {Ceil(groups, kMaxBlock)};
  error = Launch(SumGroupsKernel, each, stream, p, absmax, sums);
  if (error.ok()) error = Launch(OffsetKernel, {1, 1}, stream, p, sums);
  if (error.ok()) error = Launch(QuantizeGroupsKernel, each, stream, p, absmax);
  return error;
}

Error DequantizeNf4(const DequantizeNf4Params& p, Stream stream) {
  const ElementGrid grid = ElementGridOf(p.N, Ceil(p.K, kEight));
  return ByType(p.dtype, [&](auto t) {
    using T = decltype(t);
    const bool wide = Divides({p.w, p.w_stride, SizeOf(p.dtype)}, p.K, kEight) &&
                      reinterpret_cast<uintptr_t>(p.from.codes) % 4 == 0;
    return Launch(wide ? DequantizeNf4Kernel<T, true> : DequantizeNf4Kernel<T, false>,
                  {grid.blocks}, stream, p, grid);
  });
}

}  // namespace snug::kernels::cuda
