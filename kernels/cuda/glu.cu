// Gated linear units on CUDA.
#include "kernels/glu.h"

#include "kernels/cuda/activations.cuh"
#include "kernels/cuda/eights.cuh"
#include "kernels/cuda/entries.h"

namespace snug::kernels::cuda {
namespace {

__device__ inline float Times(float a, float b) { return a * b; }

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kMaxBlock)
    GluForwardKernel(GluForwardParams p, ElementGrid grid) {
  ForElements(grid, [&](int64_t row, int64_t pack) {
    const Place at = {row, pack * kEight, p.C};
    const Eight g = LoadEight<T, kAligned>(p.g, p.g_stride, at);
    const Eight u = LoadEight<T, kAligned>(p.u, p.u_stride, at);
    Eight active;
    ByActivation(p.gate, [&](auto h) {
      active = Each([](float f) { return decltype(h)::Of(f).value; }, g);
    });
    if (p.codes != nullptr) {
      StoreCodes<2>(p.codes, p.code_stride, at, TwoBitCodes(g, p.two_bit));
    }
    if (p.a != nullptr) StoreEight<T, kAligned>(p.a, p.a_stride, at, active);
    StoreEight<T, kAligned>(p.p, p.p_stride, at, Each(Times, active, u));
  });
}

// All operands are read before one is written: results may lie over any of them.
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kMaxBlock, kFewBlocks)
    GluBackwardKernel(GluBackwardParams p, ElementGrid grid) {
  ForElements(grid, [&](int64_t row, int64_t pack) {
    const Place at = {row, pack * kEight, p.C};
    const Eight dp = LoadEight<T, kAligned>(p.dp, p.dp_stride, at);
    Eight value = {}, slope;
    if (p.codes != nullptr) {
      const unsigned codes = LoadCodes<2>(p.codes, p.code_stride, at);
#pragma unroll
      for (int i = 0; i < kEight; ++i) slope.at[i] = SlopeOf(codes >> 2 * i & 3, p.two_bit.slope);
      if (p.du != nullptr) value = LoadEight<T, kAligned>(p.a, p.a_stride, at);
    } else {
      const Eight g = LoadEight<T, kAligned>(p.g, p.g_stride, at);
      ByActivation(p.gate, [&](auto h) {
#pragma unroll
        for (int i = 0; i < kEight; ++i) {
          const ValueAndSlope both = decltype(h)::Of(g.at[i]);
          value.at[i] = both.value;
          slope.at[i] = both.slope;
        }
      });
    }
    if (p.dg != nullptr) {
      const Eight u = LoadEight<T, kAligned>(p.u, p.u_stride, at);
      slope = Each(Times, Each(Times, dp, u), slope);
    }
    if (p.du != nullptr) {
      StoreEight<T, kAligned>(p.du, p.du_stride, at, Each(Times, dp, value));
    }
    if (p.dg != nullptr) StoreEight<T, kAligned>(p.dg, p.dg_stride, at, slope);
  });
}

}  // namespace

Error GluForward(const GluForwardParams& p, Stream stream) {
  const int64_t bytes = SizeOf(p.dtype);
  return ByEights(p.dtype, p.N, p.C,
                  {{p.g, p.g_stride, bytes},
                   {p.u, p.u_stride, bytes},
                   {p.p, p.p_stride, bytes},
                   {p.a, p.a_stride, bytes}},
                  [&](auto t, auto aligned, const ElementGrid& grid) {
                    constexpr bool kAligned = decltype(aligned)::value != 0;
                    return Launch(GluForwardKernel<decltype(t), kAligned>, {grid.blocks}, stream, p,
                                  grid);
                  });
}

Error GluBackward(const GluBackwardParams& p, Stream stream) {
  const int64_t bytes = SizeOf(p.dtype);
  return ByEights(p.dtype, p.N, p.C,
                  {{p.dp, p.dp_stride, bytes},
                   {p.codes == nullptr ? p.g : nullptr, p.g_stride, bytes},
                   {p.codes == nullptr || p.du == nullptr ? nullptr : p.a, p.a_stride, bytes},
                   {p.dg == nullptr ? nullptr : p.u, p.u_stride, bytes},
                   {p.dg, p.dg_stride, bytes},
                   {p.du, p.du_stride, bytes}},
                  [&](auto t, auto aligned, const ElementGrid& grid) {
                    constexpr bool kAligned = decltype(aligned)::value != 0;
                    return Launch(GluBackwardKernel<decltype(t), kAligned>, {grid.blocks}, stream,
                                  p, grid);
                  });
}

}  // namespace snug::kernels::cuda
