// Inner loops of a norm's affine step.
#include "kernels/affine.h"

#include "kernels/cpu/loops/column_sums.h"
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/output.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

template <typename T, typename G>
void ForwardTyped(const AffineForwardParams& p, Range rows) {
  const G* gamma = static_cast<const G*>(p.gamma);
  const G* beta = static_cast<const G*>(p.beta);
  const float offset = p.offset;
  const Output out(p.z == p.xhat ? 0 : p.N * p.C * static_cast<int64_t>(sizeof(T)));
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* xhat = RowOf<T>(p.xhat, i, p.xhat_stride);
    T* z = RowOf<T>(p.z, i, p.z_stride);
    ForVectors(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
      F32x16 v = Load(xhat + c, part) * (offset + Load(gamma + c, part));
      if (beta != nullptr) v += Load(beta + c, part);
      out.Put(z + c, v, part);
    });
  }
}

// Of rows i .. i + kRows - 1 of a block of columns: writes dxhat, adds dz * xhat into sums[0] and
// dz into sums[1], one row after another. Of a vector all is read before dxhat is written, maybe
// over dz.
template <typename T, typename G, int kRows>
SNUG_INLINE void BackwardRows(const AffineBackwardParams& p, int64_t i, Range columns,
                              float (&sums)[2][kBlockColumns], const Output& out) {
  const G* gamma = static_cast<const G*>(p.gamma) + columns.begin;
  const bool has_xhat = p.dgamma != nullptr, has_dxhat = p.dxhat != nullptr;
  const int64_t dz_ahead = Ahead(i, kRows, p.N, p.dz_stride);
  const int64_t xhat_ahead = Ahead(i, kRows, p.N, p.xhat_stride);
  const float offset = p.offset;
  const T *dz[kRows], *xhat[kRows];
  T* dxhat[kRows];
  float r[kRows];
  for (int k = 0; k < kRows; ++k) {
    dz[k] = RowOf<T>(p.dz, i + k, p.dz_stride) + columns.begin;
    xhat[k] = has_xhat ? RowOf<T>(p.xhat, i + k, p.xhat_stride) + columns.begin : nullptr;
    dxhat[k] = has_dxhat ? RowOf<T>(p.dxhat, i + k, p.dxhat_stride) + columns.begin : nullptr;
    r[k] = p.r == nullptr ? 1.0f : p.r[i + k];
  }
  ForVectors(columns.end - columns.begin, [&](int64_t c, auto part) SNUG_LAMBDA {
    F32x16 g[kRows];
    for (int k = 0; k < kRows; ++k) {
      Fetch(dz[k] + dz_ahead + c);
      g[k] = Load(dz[k] + c, part);
    }
    if (has_xhat) {
      F32x16 sum = Load(sums[0] + c, part);
      for (int k = 0; k < kRows; ++k) {
        Fetch(xhat[k] + xhat_ahead + c);
        sum += g[k] * (Load(xhat[k] + c, part) * r[k]);
      }
      Store(sums[0] + c, sum, part);
    }
    if (p.dbeta != nullptr) {
      F32x16 sum = Load(sums[1] + c, part);
      for (int k = 0; k < kRows; ++k) sum += g[k];
      Store(sums[1] + c, sum, part);
    }
    if (!has_dxhat) return;
    const F32x16 factor = offset + Load(gamma + c, part);
    for (int k = 0; k < kRows; ++k) out.Put(dxhat[k] + c, g[k] * factor, part);
  });
}

}  // namespace

void AffineForwardRows(const AffineForwardParams& p, Range rows) {
  ByType(p.dtype, [&](auto t) {
    ByType(p.gamma_dtype, [&](auto g) { ForwardTyped<decltype(t), decltype(g)>(p, rows); });
  });
}

void AffineBackwardColumns(const AffineBackwardParams& p, Range all) {
  float* const results[] = {p.dgamma, p.dbeta};
  ByType(p.dtype, [&](auto t) {
    const bool stays = p.dxhat == nullptr || p.dxhat == p.dz;
    const Output out(stays ? 0 : p.N * p.C * static_cast<int64_t>(sizeof(t)));
    ByType(p.gamma_dtype, [&](auto g) {
      ColumnSumSets(p.N, all, results, p.accumulate, [&](Range rows, Range columns, auto& sums) {
        ByFours(rows, [&](auto together, int64_t i) {
          BackwardRows<decltype(t), decltype(g), together.kRows>(p, i, columns, sums, out);
        });
      });
    });
  });
}

}  // namespace snug::kernels::SNUG_ISA
