// A norm and its linear taken together, on CUDA.
#include "kernels/norm_merge.h"

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/entries.h"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/team.cuh"

namespace snug::kernels::cuda {
namespace {

// Writes dw, and the sums of w * g and of w * s, each where it is wanted.
template <int V>
__global__ void __launch_bounds__(kMaxBlock, kFewBlocks)
    FoldNormKernel(FoldNormParams p, ColumnGrid grid) {
  float* const results[] = {p.dgamma, p.dbeta};
  SumColumnSets<V>(grid, p.workspace, results, [&](int64_t row, int64_t c, Floats<V>(&terms)[2]) {
    const Floats<V> g = Load<V>(p.g + row * p.g_stride + c);
    const float s = p.s == nullptr ? 0.0f : p.s[row];
    if (p.dgamma != nullptr || p.dbeta != nullptr) {
      const Floats<V> w = LoadAny<V>(p.w, p.w_dtype, row * p.w_stride + c);
      terms[0] = Each([](float a, float b) { return a * b; }, w, g);
      terms[1] = Each([&](float a) { return a * s; }, w);
    }
    if (p.dw == nullptr) return;
    Floats<V> v = Each([&](float a, float b) { return a * (p.offset + b); }, g,
                       LoadAny<V>(p.gamma, p.gamma_dtype, c));
    if (p.beta != nullptr) {
      v = Each([&](float a, float b) { return a + s * b; }, v,
               LoadAny<V>(p.beta, p.gamma_dtype, c));
    }
    float* dw = p.dw + row * p.dw_stride + c;
    if (p.accumulate) v = Each([](float a, float b) { return a + b; }, v, Load<V>(dw));
    Store(dw, v);
  });
}

// A block a row, in fp64; once a weight, so packs are not worth their code.
template <typename T>
__global__ void __launch_bounds__(kMaxBlock) MergeNormKernel(MergeNormParams p, bool undo) {
  const Team<true> team;
  for (int64_t row = team.row; row < p.N; row += team.rows_apart) {
    const T* w = static_cast<const T*>(p.w) + row * p.w_stride;
    T* merged = static_cast<T*>(p.merged_w) + row * p.merged_w_stride;
    double dot = 0.0;  // Of beta with the weight that stands before the affine step.
    for (int64_t c = team.thread; c < p.C; c += team.threads) {
      const double factor = static_cast<double>(p.offset) +
                            static_cast<double>(LoadAny<1>(p.gamma, p.gamma_dtype, c).at[0]);
      const double element = Widen(w[c]), result = undo ? element / factor : element * factor;
      if (p.beta != nullptr) {
        dot += (undo ? result : element) *
               static_cast<double>(LoadAny<1>(p.beta, p.gamma_dtype, c).at[0]);
      }
      Round(static_cast<float>(result), merged[c]);
    }
    dot = team.Sum(dot);
    if (team.thread != 0 || p.merged_b == nullptr) continue;
    const double b = p.b == nullptr ? 0.0 : Widen(static_cast<const T*>(p.b)[row]);
    Round(static_cast<float>(undo ? b - dot : b + dot), static_cast<T*>(p.merged_b)[row]);
  }
}

Error Merge(const MergeNormParams& p, bool undo, Stream stream) {
  return ByType(p.dtype, [&](auto t) {
    return Launch(MergeNormKernel<decltype(t)>, {p.N}, stream, p, undo);
  });
}

}  // namespace

Error FoldNorm(const FoldNormParams& p, Stream stream) {
  const int64_t small = SizeOf(p.gamma_dtype);
  return ByPacks(DType::kF32, p.C,
                 {{p.g, p.g_stride, 4},
                  {p.w, p.w_stride, SizeOf(p.w_dtype)},
                  {p.dw, p.dw_stride, 4},
                  {p.gamma, 0, small},
                  {p.beta, 0, small}},
                 [&](auto, auto v) {
                   constexpr int V = decltype(v)::value;
                   const ColumnGrid grid = ColumnGridOf(p.N, p.C, V);
                   const Error error = Launch(FoldNormKernel<V>, {grid.blocks()}, stream, p, grid);
                   if (!error.ok()) return error;
                   float* const results[] = {p.dgamma, p.dbeta};
                   return AddPartSets(grid, p.workspace, results, p.accumulate, stream);
                 });
}

Error MergeNorm(const MergeNormParams& p, Stream stream) { return Merge(p, false, stream); }
Error UnmergeNorm(const MergeNormParams& p, Stream stream) { return Merge(p, true, stream); }

}  // namespace snug::kernels::cuda
