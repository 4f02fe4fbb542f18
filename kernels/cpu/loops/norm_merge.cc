// Inner loops of the gradients of a norm and its linear, and of their merge.
#include "kernels/norm_merge.h"

#include "kernels/cpu/loops/column_sums.h"
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

// Rows i .. i + kRows - 1 of a block of columns, which memory delivers side by side; they are added
// one after another all the same. Of a vector all is read before dw is written, maybe over g.
template <int kRows>
SNUG_INLINE void FoldRows(const FoldNormParams& p, int64_t i, Range columns,
                          float (&sums)[2][kBlockColumns]) {
  const bool has_sums = p.dgamma != nullptr || p.dbeta != nullptr;
  ForVectors(columns.end - columns.begin, [&](int64_t c, auto part) SNUG_LAMBDA {
    const int64_t column = columns.begin + c;
    F32x16 g[kRows];
    for (int k = 0; k < kRows; ++k) g[k] = Load(p.g + (i + k) * p.g_stride + column, part);
    const auto s_of = [&](int k) SNUG_LAMBDA { return p.s == nullptr ? 0.0f : p.s[i + k]; };
    if (has_sums) {
      F32x16 gamma = Load(sums[0] + c, part), beta = Load(sums[1] + c, part);
      for (int k = 0; k < kRows; ++k) {
        const F32x16 w = LoadAny(p.w, p.w_dtype, (i + k) * p.w_stride + column, part);
        gamma += w * g[k];
        beta += w * s_of(k);
      }
      Store(sums[0] + c, gamma, part);
      Store(sums[1] + c, beta, part);
    }
    if (p.dw == nullptr) return;
    const F32x16 factor = p.offset + LoadAny(p.gamma, p.gamma_dtype, column, part);
    F32x16 shift{};
    if (p.beta != nullptr) shift = LoadAny(p.beta, p.gamma_dtype, column, part);
    for (int k = 0; k < kRows; ++k) {
      float* dw = p.dw + (i + k) * p.dw_stride + column;
      F32x16 v = g[k] * factor;
      if (p.beta != nullptr) v += s_of(k) * shift;
      if (p.accumulate) v += Load(dw, part);
      Store(dw, v, part);
    }
  });
}

// A block of rows and columns: adds w * g into sums[0] and w * s into sums[1], writes dw.
void FoldBlock(const FoldNormParams& p, Range rows, Range columns,
               float (&sums)[2][kBlockColumns]) {
  constexpr int kTogether = 4;
  int64_t i = rows.begin;
  for (; i + kTogether <= rows.end; i += kTogether) FoldRows<kTogether>(p, i, columns, sums);
  for (; i < rows.end; ++i) FoldRows<1>(p, i, columns, sums);
}

struct Sixteen {
  float at[kLanes];
  explicit SNUG_INLINE Sixteen(F32x16 v) { Store(at, v, Whole{}); }
};

// Sixteen chains of beta's product with the weight that stands before the affine step, and a tree
// over them.
template <typename T, bool kUndo>
void MergeRow(const MergeNormParams& p, int64_t i) {
  const T* w = RowOf<T>(p.w, i, p.w_stride);
  T* merged = RowOf<T>(p.merged_w, i, p.merged_w_stride);
  double chains[kLanes] = {};
  ForVectors(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
    const Sixteen element(Load(w + c, part));
    const Sixteen gamma(FillBeyond(LoadAny(p.gamma, p.gamma_dtype, c, part), part, 1.0f));
    Sixteen result(F32x16{});
    double before[kLanes];
    for (int64_t k = 0; k < kLanes; ++k) {
      const double factor = static_cast<double>(p.offset) + static_cast<double>(gamma.at[k]);
      const double x = static_cast<double>(element.at[k]), y = kUndo ? x / factor : x * factor;
      before[k] = kUndo ? y : x;
      result.at[k] = static_cast<float>(y);
    }
    Store(merged + c, Load(result.at, Whole{}), part);
    if (p.beta == nullptr) return;
    const Sixteen beta(LoadAny(p.beta, p.gamma_dtype, c, part));
    for (int64_t k = 0; k < Count(part); ++k) {
      chains[k] += before[k] * static_cast<double>(beta.at[k]);
    }
  });
  if (p.merged_b == nullptr) return;
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t k = 0; k < width; ++k) chains[k] += chains[k + width];
  }
  const double b =
      p.b == nullptr ? 0.0 : static_cast<double>(Load(static_cast<const T*>(p.b) + i, Part{1})[0]);
  const auto sum = static_cast<float>(kUndo ? b - chains[0] : b + chains[0]);
  Store(static_cast<T*>(p.merged_b) + i, Splat(sum), Part{1});
}

}  // namespace

void FoldNormColumns(const FoldNormParams& p, Range all) {
  float* const results[] = {p.dgamma, p.dbeta};
  ColumnSumSets(p.N, all, results, p.accumulate,
                [&](Range rows, Range columns, auto& sums) { FoldBlock(p, rows, columns, sums); });
}

void MergeNormRows(const MergeNormParams& p, bool undo, Range rows) {
  ByType(p.dtype, [&](auto t) {
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      undo ? MergeRow<decltype(t), true>(p, i) : MergeRow<decltype(t), false>(p, i);
    }
  });
}

}  // namespace snug::kernels::SNUG_ISA
