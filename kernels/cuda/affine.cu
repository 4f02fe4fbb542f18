// A norm's affine step on CUDA.
#include "kernels/affine.h"

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/entries.h"
#include "kernels/cuda/pack.cuh"

namespace snug::kernels::cuda {
namespace {

template <typename T, int V>
__global__ void __launch_bounds__(kMaxBlock)
    AffineForwardKernel(AffineForwardParams p, ElementGrid grid) {
  ForElements(grid, [&](int64_t row, int64_t pack) {
    const T* xhat = static_cast<const T*>(p.xhat) + row * p.xhat_stride;
    T* z = static_cast<T*>(p.z) + row * p.z_stride;
    Floats<V> v = Each([&](float x, float g) { return x * (p.offset + g); },
                       Load<V>(xhat + pack * V), LoadAny<V>(p.gamma, p.gamma_dtype, pack * V));
    if (p.beta != nullptr) {
      v = Each([](float a, float b) { return a + b; }, v,
               LoadAny<V>(p.beta, p.gamma_dtype, pack * V));
    }
    Store(z + pack * V, v);
  });
}

// Writes dxhat and the sums of dz * xhat and of dz, each where it is wanted.
template <typename T, int V>
__global__ void __launch_bounds__(kMaxBlock, kFewBlocks)
    AffineBackwardKernel(AffineBackwardParams p, ColumnGrid grid) {
  const T* dz = static_cast<const T*>(p.dz);
  const T* xhat = static_cast<const T*>(p.xhat);
  T* dxhat = static_cast<T*>(p.dxhat);
  float* const results[] = {p.dgamma, p.dbeta};
  SumColumnSets<V>(grid, p.workspace, results, [&](int64_t row, int64_t c, Floats<V>(&terms)[2]) {
    const Floats<V> g = Load<V>(dz + row * p.dz_stride + c);
    terms[1] = g;
    if (p.dgamma != nullptr) {
      const float r = p.r == nullptr ? 1.0f : p.r[row];
      terms[0] = Each([&](float a, float b) { return a * (b * r); }, g,
                      Load<V>(xhat + row * p.xhat_stride + c));
    }
    if (dxhat != nullptr) {
      Store(dxhat + row * p.dxhat_stride + c,
            Each([&](float a, float b) { return a * (p.offset + b); }, g,
                 LoadAny<V>(p.gamma, p.gamma_dtype, c)));
    }
  });
}

}  // namespace

Error AffineForward(const AffineForwardParams& p, Stream stream) {
  const int64_t bytes = SizeOf(p.dtype), small = SizeOf(p.gamma_dtype);
  return ByPacks(p.dtype, p.C,
                 {{p.xhat, p.xhat_stride, bytes},
                  {p.gamma, 0, small},
                  {p.beta, 0, small},
                  {p.z, p.z_stride, bytes}},
                 [&](auto t, auto v) {
                   constexpr int V = decltype(v)::value;
                   const ElementGrid grid = ElementGridOf(p.N, p.C / V);
                   return Launch(AffineForwardKernel<decltype(t), V>, {grid.blocks}, stream, p,
                                 grid);
                 });
}

Error AffineBackward(const AffineBackwardParams& p, Stream stream) {
  const int64_t bytes = SizeOf(p.dtype);
  return ByPacks(p.dtype, p.C,
                 {{p.dz, p.dz_stride, bytes},
                  {p.xhat, p.xhat_stride, bytes},
                  {p.gamma, 0, SizeOf(p.gamma_dtype)},
                  {p.dxhat, p.dxhat_stride, bytes}},
                 [&](auto t, auto v) {
                   constexpr int V = decltype(v)::value;
                   const ColumnGrid grid = ColumnGridOf(p.N, p.C, V);
                   const Error error = Launch(AffineBackwardKernel<decltype(t), V>, {grid.blocks()},
                                              stream, p, grid);
                   if (!error.ok()) return error;
                   float* const results[] = {p.dgamma, p.dbeta};
                   return AddPartSets(grid, p.workspace, results, p.accumulate, stream);
                 });
}

}  // namespace snug::kernels::cuda
