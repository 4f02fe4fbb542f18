// RMS norm on CUDA. A row is read once: its packs stay in registers between the sum and the
// product.
#include "kernels/rms_norm.h"

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
    Floats<V> held[kHeld];
    float squares = 0.0f;
    const auto add = [&](const Floats<V>& v) {
#pragma unroll
      for (int i = 0; i < V; ++i) squares += v.at[i] * v.at[i];
    };
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      const int64_t pack = team.thread + int64_t{k} * team.threads;
      if (pack >= packs) break;
      held[k] = Load<V>(x + pack * V);
      add(held[k]);
    }
    const int64_t rest = team.thread + int64_t{kHeld} * team.threads;
    for (int64_t pack = rest; pack < packs; pack += team.threads) add(Load<V>(x + pack * V));
    const float mean = team.Sum(squares) / static_cast<float>(p.C);
    const float r = __fdiv_rn(1.0f, __fsqrt_rn(mean + p.eps));
    if (team.thread == 0) p.r[row] = r;
    const auto write = [&](Floats<V> v, int64_t pack) {
#pragma unroll
      for (int i = 0; i < V; ++i) v.at[i] *= r;
      Store(xhat + pack * V, v);
    };
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      const int64_t pack = team.thread + int64_t{k} * team.threads;
      if (pack >= packs) break;
      write(held[k], pack);
    }
    for (int64_t pack = rest; pack < packs; pack += team.threads)
      write(Load<V>(x + pack * V), pack);
  }
}

template <typename T, int V>
Error NormalizeForwardOf(const NormalizeForwardParams& p, Stream stream) {
  const auto kernel = BlockPerRow(p.C / V) ? NormalizeForwardKernel<T, V, true>
                                           : NormalizeForwardKernel<T, V, false>;
  return Launch(kernel, RowGrid(p.N, p.C / V), stream, p);
}

}  // namespace

Error NormalizeForward(const NormalizeForwardParams& p, Stream stream) {
  return ByType(p.dtype, [&](auto t) {
    using T = decltype(t);
    const bool wide =
        Wide(p.x, p.C, p.x_stride, sizeof(T)) && Wide(p.xhat, p.C, p.xhat_stride, sizeof(T));
    return wide ? NormalizeForwardOf<T, kWide<T>>(p, stream) : NormalizeForwardOf<T, 1>(p, stream);
  });
}

}  // namespace snug::kernels::cuda
