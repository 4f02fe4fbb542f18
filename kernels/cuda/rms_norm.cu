// RMS norm on CUDA. A row is read once: its packs stay in registers between the sum and the
// product.
#include "kernels/rms_norm.h"

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/entries.h"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/team.cuh"

namespace snug::kernels::cuda {
namespace {

template <typename T, int V, bool kBlock>
__global__ void __launch_bounds__(kMaxBlock) NormalizeForwardKernel(NormalizeForwardParams p) {
  const Team<kBlock> team;
  const int64_t packs = p.C / V;
  for (int64_t row = team.row; row < p.N; row += team.rows_apart) {
    const T* x = static_cast<const T*>(p.x) + row * p.x_stride;
    T* xhat = static_cast<T*>(p.xhat) + row * p.xhat_stride;
    Pack<T, V> held[kHeld];
    float squares = 0.0f;
    ForPacks(team, packs, [&](int k, int64_t pack) {
      const Pack<T, V> read = LoadPack<V>(x + pack * V);
      if (k < kHeld) held[k] = read;
      const Floats<V> v = Widen(read);
#pragma unroll
      for (int i = 0; i < V; ++i) squares += v.at[i] * v.at[i];
    });
    const float mean = team.Sum(squares) / static_cast<float>(p.C);
    const float r = __fdiv_rn(1.0f, __fsqrt_rn(mean + p.eps));
    if (team.thread == 0) p.r[row] = r;
    ForPacks(team, packs, [&](int k, int64_t pack) {
      const Floats<V> v = Widen(k < kHeld ? held[k] : LoadPack<V>(x + pack * V));
      Store(xhat + pack * V, Each([&](float f) { return f * r; }, v));
    });
  }
}

template <typename T, int V, bool kBlock>
__global__ void __launch_bounds__(kMaxBlock, kFewBlocks)
    NormalizeBackwardKernel(NormalizeBackwardParams p) {
  const Team<kBlock> team;
  const int64_t packs = p.C / V;
  for (int64_t row = team.row; row < p.N; row += team.rows_apart) {
    const T* dxhat = static_cast<const T*>(p.dxhat) + row * p.dxhat_stride;
    const T* xhat = static_cast<const T*>(p.xhat) + row * p.xhat_stride;
    T* dx = static_cast<T*>(p.dx) + row * p.dx_stride;
    Pack<T, V> held_g[kHeld], held_x[kHeld];
    float dot = 0.0f;
    ForPacks(team, packs, [&](int k, int64_t pack) {
      const Pack<T, V> g = LoadPack<V>(dxhat + pack * V), x = LoadPack<V>(xhat + pack * V);
      if (k < kHeld) {
        held_g[k] = g;
        held_x[k] = x;
      }
      const Floats<V> products = Each([](float a, float b) { return a * b; }, Widen(g), Widen(x));
#pragma unroll
      for (int i = 0; i < V; ++i) dot += products.at[i];
    });
    const float mean = team.Sum(dot) / static_cast<float>(p.C), r = p.r[row];
    ForPacks(team, packs, [&](int k, int64_t pack) {
      const Floats<V> g = Widen(k < kHeld ? held_g[k] : LoadPack<V>(dxhat + pack * V));
      const Floats<V> x = Widen(k < kHeld ? held_x[k] : LoadPack<V>(xhat + pack * V));
      Floats<V> result = Each([&](float a, float b) { return r * (a - b * mean); }, g, x);
      if (p.accumulate) {
        const Floats<V> before = Load<V>(dx + pack * V);
        result = Each([](float a, float b) { return a + b; }, before, result);
      }
      Store(dx + pack * V, result);
    });
  }
}

template <typename T, int V>
__global__ void __launch_bounds__(kMaxBlock)
    AffineForwardKernel(AffineForwardParams p, ElementGrid grid) {
  ForElements(grid, [&](int64_t row, int64_t pack) {
    const T* xhat = static_cast<const T*>(p.xhat) + row * p.xhat_stride;
    T* z = static_cast<T*>(p.z) + row * p.z_stride;
    Store(z + pack * V,
          Each([&](float x, float g) { return x * (p.offset + g); }, Load<V>(xhat + pack * V),
               LoadAny<V>(p.gamma, p.gamma_dtype, pack * V)));
  });
}

// Writes dxhat and the sums of dz * xhat, each where it is wanted.
template <typename T, int V>
__global__ void __launch_bounds__(kMaxBlock)
    AffineBackwardKernel(AffineBackwardParams p, ColumnGrid grid) {
  const T* dz = static_cast<const T*>(p.dz);
  const T* xhat = static_cast<const T*>(p.xhat);
  T* dxhat = static_cast<T*>(p.dxhat);
  float* sums = p.dgamma == nullptr ? nullptr : static_cast<float*>(p.workspace);
  SumColumns<V>(grid, sums, [&](int64_t row, int64_t c) {
    const Floats<V> g = Load<V>(dz + row * p.dz_stride + c);
    Floats<V> term = {};
    if (p.dgamma != nullptr) {
      term =
          Each([](float a, float b) { return a * b; }, g, Load<V>(xhat + row * p.xhat_stride + c));
    }
    if (dxhat != nullptr) {
      Store(dxhat + row * p.dxhat_stride + c,
            Each([&](float a, float b) { return a * (p.offset + b); }, g,
                 LoadAny<V>(p.gamma, p.gamma_dtype, c)));
    }
    return term;
  });
}

}  // namespace

Error NormalizeForward(const NormalizeForwardParams& p, Stream stream) {
  const int64_t bytes = SizeOf(p.dtype);
  return ByPacks(p.dtype, p.C, {{p.x, p.x_stride, bytes}, {p.xhat, p.xhat_stride, bytes}},
                 [&](auto t, auto v) {
                   using T = decltype(t);
                   constexpr int V = decltype(v)::value;
                   return LaunchRows(NormalizeForwardKernel<T, V, false>,
                                     NormalizeForwardKernel<T, V, true>, p.C / V, stream, p);
                 });
}

Error NormalizeBackward(const NormalizeBackwardParams& p, Stream stream) {
  const int64_t bytes = SizeOf(p.dtype);
  return ByPacks(p.dtype, p.C,
                 {{p.dxhat, p.dxhat_stride, bytes},
                  {p.xhat, p.xhat_stride, bytes},
                  {p.dx, p.dx_stride, bytes}},
                 [&](auto t, auto v) {
                   using T = decltype(t);
                   constexpr int V = decltype(v)::value;
                   return LaunchRows(NormalizeBackwardKernel<T, V, false>,
                                     NormalizeBackwardKernel<T, V, true>, p.C / V, stream, p);
                 });
}

Error AffineForward(const AffineForwardParams& p, Stream stream) {
  const int64_t bytes = SizeOf(p.dtype);
  return ByPacks(p.dtype, p.C,
                 {{p.xhat, p.xhat_stride, bytes},
                  {p.gamma, 0, SizeOf(p.gamma_dtype)},
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
                   if (!error.ok() || p.dgamma == nullptr) return error;
                   return AddParts(grid, p.workspace, p.dgamma, p.accumulate, stream);
                 });
}

}  // namespace snug::kernels::cuda
