// Inner loops of the gradients of a norm and its linear, and of their merge.
#include "kernels/norm_merge.h"

#include "kernels/cpu/loops/column_sums.h"
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/output.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

// Of rows i .. i + kRows - 1 of a block of columns: adds w * g into sums[0] and w * s into sums[1],
// one row after another, and writes dw. Of a vector all is read before dw is written, maybe over g.
template <typename W, typename G, int kRows>
SNUG_INLINE void FoldRows(const FoldNormParams& p, int64_t i, Range columns,
                          float (&sums)[2][kBlockColumns], const Output& out) {
  const bool has_sums = p.dgamma != nullptr || p.dbeta != nullptr, has_dw = p.dw != nullptr;
  const int64_t g_ahead = Ahead(i, kRows, p.N, p.g_stride);
  const int64_t w_ahead = Ahead(i, kRows, p.N, p.w_stride);
  const G* gamma = has_dw ? static_cast<const G*>(p.gamma) + columns.begin : nullptr;
  const G* beta =
      has_dw && p.beta != nullptr ? static_cast<const G*>(p.beta) + columns.begin : nullptr;
  const float offset = p.offset;
  const float* g[kRows];
  const W* w[kRows];
  float* dw[kRows];
  float s[kRows];
  for (int k = 0; k < kRows; ++k) {
    g[k] = RowOf<float>(p.g, i + k, p.g_stride) + columns.begin;
    w[k] = has_sums ? RowOf<W>(p.w, i + k, p.w_stride) + columns.begin : nullptr;
    dw[k] = has_dw ? RowOf<float>(p.dw, i + k, p.dw_stride) + columns.begin : nullptr;
    s[k] = p.s == nullptr ? 0.0f : p.s[i + k];
  }
  ForVectors(columns.end - columns.begin, [&](int64_t c, auto part) SNUG_LAMBDA {
    F32x16 v[kRows];
    for (int k = 0; k < kRows; ++k) {
      Fetch(g[k] + g_ahead + c);
      v[k] = Load(g[k] + c, part);
    }
    if (has_sums) {
      F32x16 d_gamma = Load(sums[0] + c, part), d_beta = Load(sums[1] + c, part);
      for (int k = 0; k < kRows; ++k) {
        Fetch(w[k] + w_ahead + c);
        const F32x16 weight = Load(w[k] + c, part);
        d_gamma += weight * v[k];
        d_beta += weight * s[k];
      }
      Store(sums[0] + c, d_gamma, part);
      Store(sums[1] + c, d_beta, part);
    }
    if (!has_dw) return;
    const F32x16 factor = offset + Load(gamma + c, part);
    const F32x16 shift = beta == nullptr ? F32x16{} : Load(beta + c, part);
    for (int k = 0; k < kRows; ++k) {
      F32x16 sum = v[k] * factor;
      if (beta != nullptr) sum += s[k] * shift;
      if (p.accumulate) sum += Load(dw[k] + c, part);
      out.Put(dw[k] + c, sum, part);
    }
  });
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
  const bool stays = p.dw == nullptr || p.dw == p.g || p.accumulate;
  const Output out(stays ? 0 : p.N * p.C * static_cast<int64_t>(sizeof(float)));
  const bool has_sums = p.dgamma != nullptr || p.dbeta != nullptr;
  ByType(has_sums ? p.w_dtype : DType::kF32, [&](auto w) {
    ByType(p.gamma_dtype, [&](auto g) {
      ColumnSumSets(p.N, all, results, p.accumulate, [&](Range rows, Range columns, auto& sums) {
        ByFours(rows, [&](auto together, int64_t i) {
          FoldRows<decltype(w), decltype(g), together.kRows>(p, i, columns, sums, out);
        });
      });
    });
  });
}

void MergeNormRows(const MergeNormParams& p, bool undo, Range rows) {
  ByType(p.dtype, [&](auto t) {
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      undo ? MergeRow<decltype(t), true>(p, i) : MergeRow<decltype(t), false>(p, i);
    }
  });
}

}  // namespace snug::kernels::SNUG_ISA
