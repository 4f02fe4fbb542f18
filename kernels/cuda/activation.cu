// Activations of one operand on CUDA.
#include "kernels/activation.h"

#include "kernels/cuda/activations.cuh"
#include "kernels/cuda/eights.cuh"
#include "kernels/cuda/entries.h"

namespace snug::kernels::cuda {
namespace {

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kMaxBlock)
    ActivationForwardKernel(ActivationForwardParams p, ElementGrid grid) {
  ForElements(grid, [&](int64_t row, int64_t pack) {
    const Place at = {row, pack * kEight, p.C};
    const Eight x = LoadEight<T, kAligned>(p.x, p.x_stride, at);
    Eight y;
    ByActivation(p.activation,
                 [&](auto h) { y = Each([](float f) { return decltype(h)::Of(f).value; }, x); });
    StoreEight<T, kAligned>(p.y, p.y_stride, at, y);
    if (p.codes != nullptr) {
      StoreCodes<2>(p.codes, p.code_stride, at, TwoBitCodes(x, p.two_bit));
    }
    if (p.mask != nullptr) {
      StoreCodes<1>(p.mask, p.mask_stride, at, PositiveBits(x));
    }
  });
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kMaxBlock)
    ActivationBackwardKernel(ActivationBackwardParams p, ElementGrid grid) {
  ForElements(grid, [&](int64_t row, int64_t pack) {
    const Place at = {row, pack * kEight, p.C};
    const Eight dy = LoadEight<T, kAligned>(p.dy, p.dy_stride, at);
    const Eight x = LoadEight<T, kAligned>(p.x, p.x_stride, at);
    Eight dx;
    ByActivation(p.activation, [&](auto h) {
      dx = Each([](float g, float f) { return g * decltype(h)::Of(f).slope; }, dy, x);
    });
    StoreEight<T, kAligned>(p.dx, p.dx_stride, at, dx);
  });
}

}  // namespace

Error ActivationForward(const ActivationForwardParams& p, Stream stream) {
  const int64_t bytes = SizeOf(p.dtype);
  return ByEights(p.dtype, p.N, p.C, {{p.x, p.x_stride, bytes}, {p.y, p.y_stride, bytes}},
                  [&](auto t, auto aligned, const ElementGrid& grid) {
                    constexpr bool kAligned = decltype(aligned)::value != 0;
                    return Launch(ActivationForwardKernel<decltype(t), kAligned>, {grid.blocks},
                                  stream, p, grid);
                  });
}

Error ActivationBackward(const ActivationBackwardParams& p, Stream stream) {
  const int64_t bytes = SizeOf(p.dtype);
  return ByEights(
      p.dtype, p.N, p.C,
      {{p.dy, p.dy_stride, bytes}, {p.x, p.x_stride, bytes}, {p.dx, p.dx_stride, bytes}},
      [&](auto t, auto aligned, const ElementGrid& grid) {
        constexpr bool kAligned = decltype(aligned)::value != 0;
        return Launch(ActivationBackwardKernel<decltype(t), kAligned>, {grid.blocks}, stream, p,
                      grid);
      });
}

}  // namespace snug::kernels::cuda
