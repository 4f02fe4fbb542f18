// Inner loops of a norm's affine step.
#include "kernels/affine.h"

#include "kernels/cpu/loops/column_sums.h"
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

template <typename T, typename G>
void ForwardTyped(const AffineForwardParams& p, Range rows) {
  const G* gamma = static_cast<const G*>(p.gamma);
  const G* beta = static_cast<const G*>(p.beta);
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* xhat = RowOf<T>(p.xhat, i, p.xhat_stride);
    T* z = RowOf<T>(p.z, i, p.z_stride);
    ForVectors(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
      F32x16 v = Load(xhat + c, part) * (p.offset + Load(gamma + c, part));
      if (beta != nullptr) v += Load(beta + c, part);
      Store(z + c, v, part);
    });
  }
}

SNUG_INLINE void AddInto(float* sums, F32x16 v, auto part) {
  Store(sums, Load(sums, part) + v, part);
}

// A block of rows and columns: writes dxhat, adds dz * xhat into sums[0] and dz into sums[1].
template <typename T, typename G>
void BackwardBlock(const AffineBackwardParams& p, Range rows, Range columns,
                   float (&sums)[2][kBlockColumns]) {
  const int64_t n = columns.end - columns.begin;
  const G* gamma = static_cast<const G*>(p.gamma) + columns.begin;
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* dz = RowOf<T>(p.dz, i, p.dz_stride) + columns.begin;
    if (p.dgamma != nullptr) {  // Before dxhat, which may be written over dz.
      const T* xhat = RowOf<T>(p.xhat, i, p.xhat_stride) + columns.begin;
      const float r = p.r == nullptr ? 1.0f : p.r[i];
      ForVectors(n, [&](int64_t c, auto part) SNUG_LAMBDA {
        AddInto(sums[0] + c, Load(dz + c, part) * (Load(xhat + c, part) * r), part);
      });
    }
    if (p.dbeta != nullptr) {
      ForVectors(n, [&](int64_t c, auto part)
                        SNUG_LAMBDA { AddInto(sums[1] + c, Load(dz + c, part), part); });
    }
    if (p.dxhat != nullptr) {
      T* dxhat = RowOf<T>(p.dxhat, i, p.dxhat_stride) + columns.begin;
      ForVectors(n, [&](int64_t c, auto part) SNUG_LAMBDA {
        Store(dxhat + c, Load(dz + c, part) * (p.offset + Load(gamma + c, part)), part);
      });
    }
  }
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
    ByType(p.gamma_dtype, [&](auto g) {
      ColumnSumSets(p.N, all, results, p.accumulate, [&](Range rows, Range columns, auto& sums) {
        BackwardBlock<decltype(t), decltype(g)>(p, rows, columns, sums);
      });
    });
  });
}

}  // namespace snug::kernels::SNUG_ISA
