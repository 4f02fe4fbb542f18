// Means of rows on CUDA: a thread has a pack of columns and goes through its group's rows, in the
// order in which the CPU adds them.
#include "kernels/mean_rows.h"

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/entries.h"
#include "kernels/cuda/pack.cuh"

namespace snug::kernels::cuda {
namespace {

template <typename T, int V>
__global__ void __launch_bounds__(kMaxBlock)
    MeanRowsForwardKernel(MeanRowsForwardParams p, ElementGrid grid) {
  constexpr int64_t kTogether = 32;
  const float share = 1.0f / static_cast<float>(p.G);
  ForElements(grid, [&](int64_t i, int64_t pack) {
    const T* x = static_cast<const T*>(p.x) + i * p.G * p.x_stride + pack * V;
    Floats<V> sum = {};
    for (int64_t first = 0; first < p.G; first += kTogether) {
      const int64_t end = min(first + kTogether, p.G);
      Floats<V> few = {};
      for (int64_t j = first; j < end; ++j)
        few = Each([](float a, float b) { return a + b; }, few, Load<V>(x + j * p.x_stride));
      sum = Each([](float a, float b) { return a + b; }, sum, few);
    }
    Store(static_cast<T*>(p.y) + i * p.y_stride + pack * V,
          Each([&](float a) { return a * share; }, sum));
  });
}

template <typename T, int V>
__global__ void __launch_bounds__(kMaxBlock)
    MeanRowsBackwardKernel(MeanRowsBackwardParams p, ElementGrid grid) {
  const float share = 1.0f / static_cast<float>(p.G);
  ForElements(grid, [&](int64_t row, int64_t pack) {
    const T* dy = static_cast<const T*>(p.dy) + row / p.G * p.dy_stride + pack * V;
    T* dx = static_cast<T*>(p.dx) + row * p.dx_stride + pack * V;
    Floats<V> d = Each([&](float a) { return a * share; }, Load<V>(dy));
    if (p.accumulate) d = Each([](float a, float b) { return a + b; }, d, Load<V>(dx));
    Store(dx, d);
  });
}

}  // namespace

Error MeanRowsForward(const MeanRowsForwardParams& p, Stream stream) {
  const int64_t bytes = SizeOf(p.dtype);
  return ByPacks(
      p.dtype, p.C, {{p.x, p.x_stride, bytes}, {p.y, p.y_stride, bytes}}, [&](auto t, auto v) {
        constexpr int V = decltype(v)::value;
        const ElementGrid grid = ElementGridOf(p.N, p.C / V);
        return Launch(MeanRowsForwardKernel<decltype(t), V>, {grid.blocks}, stream, p, grid);
      });
}

Error MeanRowsBackward(const MeanRowsBackwardParams& p, Stream stream) {
  const int64_t bytes = SizeOf(p.dtype);
  return ByPacks(
      p.dtype, p.C, {{p.dy, p.dy_stride, bytes}, {p.dx, p.dx_stride, bytes}}, [&](auto t, auto v) {
        constexpr int V = decltype(v)::value;
        const ElementGrid grid = ElementGridOf(p.N * p.G, p.C / V);
        return Launch(MeanRowsBackwardKernel<decltype(t), V>, {grid.blocks}, stream, p, grid);
      });
}

}  // namespace snug::kernels::cuda
