// Normalisation of rows on CUDA. A row is read once: its packs stay in registers between the sums
// and the product.
#include "kernels/normalize.h"

#include "kernels/cuda/entries.h"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/team.cuh"

namespace snug::kernels::cuda {
namespace {

__device__ inline float Times(float a, float b) { return a * b; }
__device__ inline float Plus(float a, float b) { return a + b; }

template <int V>
__device__ inline float Total(float before, const Floats<V>& v) {
#pragma unroll
  for (int i = 0; i < V; ++i) before += v.at[i];
  return before;
}

// offset + gamma of a pack.
template <int V, typename Params>
__device__ inline Floats<V> Factors(const Params& p, int64_t c) {
  return Each([&](float g) { return p.offset + g; }, LoadAny<V>(p.gamma, p.gamma_dtype, c));
}

// The input of a pack: x, or h, which is written.
template <typename T, typename S, int V>
__device__ inline Pack<S, V> Input(const NormalizeForwardParams& p, int64_t row, int64_t c) {
  if (p.residual == nullptr) return LoadPack<V>(static_cast<const S*>(p.x) + row * p.x_stride + c);
  const Floats<V> sum =
      Each(Plus, Load<V>(static_cast<const S*>(p.residual) + row * p.residual_stride + c),
           Load<V>(static_cast<const T*>(p.x) + row * p.x_stride + c));
  const Pack<S, V> h = Narrow<V, S>(sum);
  StorePack(static_cast<S*>(p.h) + row * p.h_stride + c, h);
  return h;
}

template <typename T, int V>
__device__ inline void WriteOutputs(const NormalizeForwardParams& p, int64_t row, int64_t c,
                                    const Floats<V>& v) {
  const Pack<T, V> xhat = Narrow<V, T>(v);
  if (p.xhat != nullptr) StorePack(static_cast<T*>(p.xhat) + row * p.xhat_stride + c, xhat);
  if (p.z == nullptr) return;
  Floats<V> z = Each(Times, p.round_xhat ? Widen(xhat) : v, Factors<V>(p, c));
  if (p.beta != nullptr) z = Each(Plus, z, LoadAny<V>(p.beta, p.gamma_dtype, c));
  Store(static_cast<T*>(p.z) + row * p.z_stride + c, z);
}

// T: of xhat and z, S: of the input.
template <typename T, typename S, int V, bool kBlock>
__global__ void __launch_bounds__(kMaxBlock, kFewBlocks)
    NormalizeForwardKernel(NormalizeForwardParams p) {
  const Team<kBlock> team;
  const int64_t packs = p.C / V;
  const float C = static_cast<float>(p.C);
  for (int64_t row = team.row; row < p.N; row += team.rows_apart) {
    // Not held, and not h: x, which nothing has been written over yet.
    const S* again = p.residual == nullptr ? static_cast<const S*>(p.x) + row * p.x_stride
                                           : static_cast<const S*>(p.h) + row * p.h_stride;
    Pack<S, V> held[kHeld];
    float sum = 0.0f, squares = 0.0f;
    ForPacks(team, packs, [&](int k, int64_t pack) {
      const Pack<S, V> read = Input<T, S, V>(p, row, pack * V);
      if (k < kHeld) held[k] = read;
      const Floats<V> v = Widen(read);
      if (p.norm == Norm::kRms) {
        squares = Total(squares, Each(Times, v, v));
      } else {
        sum = Total(sum, v);
      }
    });
    // The mean, and how far rounding has left it from the elements' own.
    float mean = 0.0f, drift = 0.0f;
    if (p.norm == Norm::kLayer) {
      mean = team.Sum(sum) / C;
      sum = 0.0f;
      ForPacks(team, packs, [&](int k, int64_t pack) {
        const Floats<V> v = Each([&](float f) { return f - mean; },
                                 Widen(k < kHeld ? held[k] : LoadPack<V>(again + pack * V)));
        sum = Total(sum, v);
        squares = Total(squares, Each(Times, v, v));
      });
      drift = team.Sum(sum) / C;
    }
    float variance = team.Sum(squares) / C - drift * drift;
    if (variance < 0.0f) variance = 0.0f;
    const float r = __fdiv_rn(1.0f, __fsqrt_rn(variance + p.eps));
    if (team.thread == 0 && p.r != nullptr) p.r[row] = r;
    ForPacks(team, packs, [&](int k, int64_t pack) {
      const Floats<V> v = Widen(k < kHeld ? held[k] : LoadPack<V>(again + pack * V));
      WriteOutputs<T>(p, row, pack * V, Each([&](float f) { return (f - mean - drift) * r; }, v));
    });
  }
}

// The mean of a row of x, as its parts `mean` and `drift` above.
template <typename S, int V, typename AnyTeam>
__device__ inline void MeanOf(const AnyTeam& team, const S* x, int64_t C, float& mean,
                              float& drift) {
  float sum = 0.0f;
  ForPacks(team, C / V, [&](int, int64_t pack) { sum = Total(sum, Load<V>(x + pack * V)); });
  mean = team.Sum(sum) / static_cast<float>(C);
  sum = 0.0f;
  ForPacks(team, C / V, [&](int, int64_t pack) {
    sum = Total(sum, Each([&](float f) { return f - mean; }, Load<V>(x + pack * V)));
  });
  drift = team.Sum(sum) / static_cast<float>(C);
}

template <typename T, typename S, int V, bool kBlock>
__global__ void __launch_bounds__(kMaxBlock, kFewBlocks)
    NormalizeBackwardKernel(NormalizeBackwardParams p) {
  const Team<kBlock> team;
  const int64_t packs = p.C / V;
  for (int64_t row = team.row; row < p.N; row += team.rows_apart) {
    const T* dxhat = static_cast<const T*>(p.dxhat) + row * p.dxhat_stride;
    const T* xhat = static_cast<const T*>(p.xhat) + row * p.xhat_stride;
    const S* x = static_cast<const S*>(p.x) + row * p.x_stride;
    S* dx = static_cast<S*>(p.dx) + row * p.dx_stride;
    const float r = p.r[row];
    float mean = 0.0f, drift = 0.0f;
    if (p.xhat == nullptr && p.norm == Norm::kLayer) {
      MeanOf<S, V>(team, x, p.C, mean, drift);
    }
    const auto gradient = [&](const Pack<T, V>& pack, int64_t c) {
      const Floats<V> g = Widen(pack);
      return p.gamma == nullptr ? g : Each(Times, g, Factors<V>(p, c));
    };
    const auto normalized = [&](int64_t c) {
      if (p.xhat != nullptr) return Load<V>(xhat + c);
      return Each([&](float f) { return (f - mean - drift) * r; }, Load<V>(x + c));
    };
    Pack<T, V> held_g[kHeld];
    Floats<V> held_x[kHeld];
    float dot = 0.0f, sum = 0.0f;
    ForPacks(team, packs, [&](int k, int64_t pack) {
      const Pack<T, V> read = LoadPack<V>(dxhat + pack * V);
      const Floats<V> n = normalized(pack * V), g = gradient(read, pack * V);
      if (k < kHeld) {
        held_g[k] = read;
        held_x[k] = n;
      }
      dot = Total(dot, Each(Times, g, n));
      sum = Total(sum, g);
    });
    dot = team.Sum(dot) / static_cast<float>(p.C);
    const float shift = p.norm == Norm::kRms ? 0.0f : team.Sum(sum) / static_cast<float>(p.C);
    ForPacks(team, packs, [&](int k, int64_t pack) {
      const int64_t c = pack * V;
      const Floats<V> g = gradient(k < kHeld ? held_g[k] : LoadPack<V>(dxhat + c), c);
      const Floats<V> n = k < kHeld ? held_x[k] : normalized(c);
      Floats<V> v = Each([&](float a, float b) { return ((a - shift) - b * dot) * r; }, g, n);
      if (p.accumulate) v = Each(Plus, Load<V>(dx + c), v);
      Store(dx + c, v);
    });
  }
}

}  // namespace

Error NormalizeForward(const NormalizeForwardParams& p, Stream stream) {
  const int64_t bytes = SizeOf(p.dtype), wide = p.wide ? 4 : bytes, small = SizeOf(p.gamma_dtype);
  return ByPacks(p.dtype, p.C,
                 {{p.x, p.x_stride, p.residual == nullptr ? wide : bytes},
                  {p.residual, p.residual_stride, wide},
                  {p.residual == nullptr ? nullptr : p.h, p.h_stride, wide},
                  {p.xhat, p.xhat_stride, bytes},
                  {p.z, p.z_stride, bytes},
                  {p.gamma, 0, small},
                  {p.beta, 0, small}},
                 [&](auto t, auto v) {
                   using T = decltype(t);
                   constexpr int V = decltype(v)::value;
                   if (p.wide) {
                     return LaunchRows(NormalizeForwardKernel<T, float, V, false>,
                                       NormalizeForwardKernel<T, float, V, true>, p.C / V, stream,
                                       p);
                   }
                   return LaunchRows(NormalizeForwardKernel<T, T, V, false>,
                                     NormalizeForwardKernel<T, T, V, true>, p.C / V, stream, p);
                 });
}

Error NormalizeBackward(const NormalizeBackwardParams& p, Stream stream) {
  const int64_t bytes = SizeOf(p.dtype), wide = p.wide ? 4 : bytes;
  return ByPacks(p.dtype, p.C,
                 {{p.dxhat, p.dxhat_stride, bytes},
                  {p.xhat, p.xhat_stride, bytes},
                  {p.xhat == nullptr ? p.x : nullptr, p.x_stride, wide},
                  {p.dx, p.dx_stride, wide},
                  {p.gamma, 0, SizeOf(p.gamma_dtype)}},
                 [&](auto t, auto v) {
                   using T = decltype(t);
                   constexpr int V = decltype(v)::value;
                   if (p.wide) {
                     return LaunchRows(NormalizeBackwardKernel<T, float, V, false>,
                                       NormalizeBackwardKernel<T, float, V, true>, p.C / V, stream,
                                       p);
                   }
                   return LaunchRows(NormalizeBackwardKernel<T, T, V, false>,
                                     NormalizeBackwardKernel<T, T, V, true>, p.C / V, stream, p);
                 });
}

}  // namespace snug::kernels::cuda
