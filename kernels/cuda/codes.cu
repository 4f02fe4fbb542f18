// Backward from codes on CUDA.
#include "kernels/codes.h"

#include "kernels/cuda/eights.cuh"
#include "kernels/cuda/entries.h"

namespace snug::kernels::cuda {
namespace {

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kMaxBlock)
    CodeBackwardKernel(CodeBackwardParams p, ElementGrid grid) {
  ForElements(grid, [&](int64_t row, int64_t pack) {
    const Place at = {row, pack * kEight, p.C};
    Eight v = LoadEight<T, kAligned>(p.dy, p.dy_stride, at);
    const unsigned codes = p.bits == 1 ? LoadCodes<1>(p.codes, p.code_stride, at)
                                       : LoadCodes<2>(p.codes, p.code_stride, at);
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      const unsigned code = p.bits == 1 ? codes >> i & 1 : codes >> 2 * i & 3;
      v.at[i] *= SlopeOf(code, p.slope);
    }
    if (p.accumulate) {
      v = Each([](float a, float b) { return a + b; },
               LoadEight<T, kAligned>(p.dx, p.dx_stride, at), v);
    }
    StoreEight<T, kAligned>(p.dx, p.dx_stride, at, v);
  });
}

}  // namespace

Error CodeBackward(const CodeBackwardParams& p, Stream stream) {
  const int64_t bytes = SizeOf(p.dtype);
  return ByEights(p.dtype, p.N, p.C, {{p.dy, p.dy_stride, bytes}, {p.dx, p.dx_stride, bytes}},
                  [&](auto t, auto aligned, const ElementGrid& grid) {
                    constexpr bool kAligned = decltype(aligned)::value != 0;
                    return Launch(CodeBackwardKernel<decltype(t), kAligned>, {grid.blocks}, stream,
                                  p, grid);
                  });
}

}  // namespace snug::kernels::cuda
