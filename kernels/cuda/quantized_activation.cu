// Activations with their input as codes, on CUDA.
#include "kernels/quantized_activation.h"

#include "kernels/cuda/activations.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/entries.h"
#include "kernels/cuda/quantized.cuh"

namespace snug::kernels::cuda {
namespace {

// All of a pack is read before it is written: y may be x.
template <typename T, bool kWide>
__global__ void __launch_bounds__(kMaxBlock)
    ForwardKernel(QuantizedActivationForwardParams p, ElementGrid grid) {
  const ActivationForwardParams& plain = p.activation;
  ForElements(grid, [&](int64_t row, int64_t pack) {
    const EightAt at = {row, plain.C, pack * kEight};
    const Floats<kEight> x =
        LoadEight<kWide>(static_cast<const T*>(plain.x) + row * plain.x_stride, at);
    Floats<kEight> y;
    ByActivation(plain.activation,
                 [&](auto h) { y = Each([](float f) { return decltype(h)::Of(f).value; }, x); });
    StoreEight<kWide>(static_cast<T*>(plain.y) + row * plain.y_stride, at, y);
    QuantizeEight<kWide>(p.x, p.dither, at, x);
  });
}

template <typename T, bool kWide>
__global__ void __launch_bounds__(kMaxBlock)
    BackwardKernel(QuantizedActivationBackwardParams p, ElementGrid grid) {
  const ActivationBackwardParams& plain = p.activation;
  ForElements(grid, [&](int64_t row, int64_t pack) {
    const EightAt at = {row, plain.C, pack * kEight};
    if (at.left() <= 0) return;
    const Floats<kEight> x = DequantizeEight<kWide>(p.x, at);
    const Floats<kEight> dy =
        LoadEight<kWide>(static_cast<const T*>(plain.dy) + row * plain.dy_stride, at);
    Floats<kEight> dx;
    ByActivation(plain.activation, [&](auto h) {
      dx = Each([](float g, float f) { return g * decltype(h)::Of(f).slope; }, dy, x);
    });
    StoreEight<kWide>(static_cast<T*>(plain.dx) + row * plain.dx_stride, at, dx);
  });
}

}  // namespace

Error QuantizedActivationForward(const QuantizedActivationForwardParams& p, Stream stream) {
  const ActivationForwardParams& plain = p.activation;
  const ElementGrid grid = ElementGridOf(plain.N, EightsOf(plain.C));
  return ByType(plain.dtype, [&](auto t) {
    using T = decltype(t);
    const bool wide = Divides({plain.x, plain.x_stride, sizeof(T)}, plain.C, kEight) &&
                      Divides({plain.y, plain.y_stride, sizeof(T)}, plain.C, kEight) &&
                      DividesCodes(p.x, plain.C);
    return Launch(wide ? ForwardKernel<T, true> : ForwardKernel<T, false>, {grid.blocks}, stream, p,
                  grid);
  });
}

Error QuantizedActivationBackward(const QuantizedActivationBackwardParams& p, Stream stream) {
  const ActivationBackwardParams& plain = p.activation;
  const ElementGrid grid = ElementGridOf(plain.N, EightsOf(plain.C));
  return ByType(plain.dtype, [&](auto t) {
    using T = decltype(t);
    const bool wide = Divides({plain.dy, plain.dy_stride, sizeof(T)}, plain.C, kEight) &&
                      Divides({plain.dx, plain.dx_stride, sizeof(T)}, plain.C, kEight) &&
                      DividesCodes(p.x, plain.C);
    return Launch(wide ? BackwardKernel<T, true> : BackwardKernel<T, false>, {grid.blocks}, stream,
                  p, grid);
  });
}

}  // namespace snug::kernels::cuda
