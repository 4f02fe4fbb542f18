// Inner loop of the gradients of a norm and its linear.
#include "kernels/norm_merge.h"

#include "kernels/cpu/loops/column_sums.h"
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

// A block of rows and columns: adds w * g into sums[0] and w * s into sums[1], then writes dw,
// which may lie over g.
void FoldBlock(const FoldNormParams& p, Range rows, Range columns,
               float (&sums)[2][kBlockColumns]) {
  const int64_t n = columns.end - columns.begin;
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const float* g = p.g + i * p.g_stride + columns.begin;
    const float s = p.s == nullptr ? 0.0f : p.s[i];
    ForVectors(n, [&](int64_t c, auto part) SNUG_LAMBDA {
      const F32x16 gradient = Load(g + c, part);
      if (p.dgamma != nullptr || p.dbeta != nullptr) {
        const F32x16 w = LoadAny(p.w, p.w_dtype, i * p.w_stride + columns.begin + c, part);
        Store(sums[0] + c, Load(sums[0] + c, part) + w * gradient, part);
        Store(sums[1] + c, Load(sums[1] + c, part) + w * s, part);
      }
      if (p.dw == nullptr) return;
      F32x16 v = gradient * (p.offset + LoadAny(p.gamma, p.gamma_dtype, columns.begin + c, part));
      if (p.beta != nullptr) v += s * LoadAny(p.beta, p.gamma_dtype, columns.begin + c, part);
      float* dw = p.dw + i * p.dw_stride + columns.begin + c;
      if (p.accumulate) v += Load(dw, part);
      Store(dw, v, part);
    });
  }
}

}  // namespace

void FoldNormColumns(const FoldNormParams& p, Range all) {
  float* const results[] = {p.dgamma, p.dbeta};
  ColumnSumSets(p.N, all, results, p.accumulate,
                [&](Range rows, Range columns, auto& sums) { FoldBlock(p, rows, columns, sums); });
}

}  // namespace snug::kernels::SNUG_ISA
