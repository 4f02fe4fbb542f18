// Inner loops of RMS norm.
#include <cmath>

#include "kernels/cpu/loops/column_sums.h"
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"
#include "kernels/rms_norm.h"

namespace snug::kernels::SNUG_ISA {
namespace {

template <typename T>
float InverseRms(const T* x, int64_t C, float eps) {
  const double squares = Sum(C, [&](int64_t c, auto part) SNUG_LAMBDA {
    const F32x16 v = Load(x + c, part);
    return v * v;
  });
  return static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(C) + eps));
}

template <typename T>
void NormalizeForwardTyped(const NormalizeForwardParams& p, Range rows) {
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* x = RowOf<T>(p.x, i, p.x_stride);
    T* xhat = RowOf<T>(p.xhat, i, p.xhat_stride);
    const float r = InverseRms(x, p.C, p.eps);
    p.r[i] = r;
    ForVectors(p.C, [&](int64_t c, auto part)
                        SNUG_LAMBDA { Store(xhat + c, Load(x + c, part) * r, part); });
  }
}

template <typename T>
void NormalizeBackwardTyped(const NormalizeBackwardParams& p, Range rows) {
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* dxhat = RowOf<T>(p.dxhat, i, p.dxhat_stride);
    const T* xhat = RowOf<T>(p.xhat, i, p.xhat_stride);
    T* dx = RowOf<T>(p.dx, i, p.dx_stride);
    const double dot = Sum(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
      return Load(dxhat + c, part) * Load(xhat + c, part);
    });
    const float mean = static_cast<float>(dot / static_cast<double>(p.C));
    const float r = p.r[i];
    ForVectors(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
      F32x16 v = (Load(dxhat + c, part) - Load(xhat + c, part) * mean) * r;
      if (p.accumulate) v += Load(dx + c, part);
      Store(dx + c, v, part);
    });
  }
}

template <typename T, typename G>
void AffineForwardTyped(const AffineForwardParams& p, Range rows) {
  const G* gamma = static_cast<const G*>(p.gamma);
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* xhat = RowOf<T>(p.xhat, i, p.xhat_stride);
    T* z = RowOf<T>(p.z, i, p.z_stride);
    ForVectors(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
      Store(z + c, Load(xhat + c, part) * (p.offset + Load(gamma + c, part)), part);
    });
  }
}

// Rows [rows) of `columns` columns from `first` on: writes dxhat, adds dz * xhat into sums.
template <typename T, typename G>
void AffineBackwardBlock(const AffineBackwardParams& p, Range rows, Range columns, float* sums) {
  const int64_t n = columns.end - columns.begin;
  const G* gamma = static_cast<const G*>(p.gamma) + columns.begin;
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* dz = RowOf<T>(p.dz, i, p.dz_stride) + columns.begin;
    if (p.dgamma != nullptr) {  // Before dxhat, which may be written over dz.
      const T* xhat = RowOf<T>(p.xhat, i, p.xhat_stride) + columns.begin;
      ForVectors(n, [&](int64_t c, auto part) SNUG_LAMBDA {
        Store(sums + c, Load(sums + c, part) + Load(dz + c, part) * Load(xhat + c, part), part);
      });
    }
    if (p.dxhat != nullptr) {
      T* dxhat = RowOf<T>(p.dxhat, i, p.dxhat_stride) + columns.begin;
      ForVectors(n, [&](int64_t c, auto part) SNUG_LAMBDA {
        Store(dxhat + c, Load(dz + c, part) * (p.offset + Load(gamma + c, part)), part);
      });
    }
  }
}

template <typename T, typename G>
void AffineBackwardTyped(const AffineBackwardParams& p, Range all) {
  ColumnSums(p.N, all, p.dgamma, p.accumulate, [&](Range rows, Range columns, float* sums) {
    AffineBackwardBlock<T, G>(p, rows, columns, sums);
  });
}

template <typename T, typename G>
void RmsNormForwardTyped(const RmsNormForwardParams& p, Range rows) {
  const G* gamma = static_cast<const G*>(p.gamma);
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* x = RowOf<T>(p.x, i, p.x_stride);
    T* z = RowOf<T>(p.z, i, p.z_stride);
    const float r = InverseRms(x, p.C, p.eps);
    p.r[i] = r;
    ForVectors(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
      Store(z + c, Load(x + c, part) * r * (p.offset + Load(gamma + c, part)), part);
    });
  }
}

template <typename T, typename G>
void RmsNormBackwardTyped(const RmsNormBackwardParams& p, Range rows) {
  const G* gamma = static_cast<const G*>(p.gamma);
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* dz = RowOf<T>(p.dz, i, p.dz_stride);
    const T* x = RowOf<T>(p.x, i, p.x_stride);
    T* dx = RowOf<T>(p.dx, i, p.dx_stride);
    const float r = p.r[i];
    const auto dxhat = [&](int64_t c, auto part) SNUG_LAMBDA {
      return Load(dz + c, part) * (p.offset + Load(gamma + c, part));
    };
    const double dot = Sum(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
      return dxhat(c, part) * (Load(x + c, part) * r);
    });
    const float mean = static_cast<float>(dot / static_cast<double>(p.C));
    ForVectors(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
      F32x16 v = (dxhat(c, part) - Load(x + c, part) * r * mean) * r;
      if (p.accumulate_dx) v += Load(dx + c, part);
      Store(dx + c, v, part);
    });
  }
}

template <typename T>
void RmsNormBackwardGammaTyped(const RmsNormBackwardParams& p, Range all) {
  const auto add = [&](Range rows, Range columns, float* sums) {
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      const T* dz = RowOf<T>(p.dz, i, p.dz_stride) + columns.begin;
      const T* x = RowOf<T>(p.x, i, p.x_stride) + columns.begin;
      const float r = p.r[i];
      ForVectors(columns.end - columns.begin, [&](int64_t c, auto part) SNUG_LAMBDA {
        Store(sums + c, Load(sums + c, part) + Load(dz + c, part) * (Load(x + c, part) * r), part);
      });
    }
  };
  ColumnSums(p.N, all, p.dgamma, p.accumulate_dgamma, add);
}

}  // namespace

void NormalizeForwardRows(const NormalizeForwardParams& p, Range rows) {
  ByType(p.dtype, [&](auto t) { NormalizeForwardTyped<decltype(t)>(p, rows); });
}

void NormalizeBackwardRows(const NormalizeBackwardParams& p, Range rows) {
  ByType(p.dtype, [&](auto t) { NormalizeBackwardTyped<decltype(t)>(p, rows); });
}

void AffineForwardRows(const AffineForwardParams& p, Range rows) {
  ByType(p.dtype, [&](auto t) {
    ByType(p.gamma_dtype, [&](auto g) { AffineForwardTyped<decltype(t), decltype(g)>(p, rows); });
  });
}

void AffineBackwardColumns(const AffineBackwardParams& p, Range columns) {
  ByType(p.dtype, [&](auto t) {
    ByType(p.gamma_dtype,
           [&](auto g) { AffineBackwardTyped<decltype(t), decltype(g)>(p, columns); });
  });
}

void RmsNormForwardRows(const RmsNormForwardParams& p, Range rows) {
  ByType(p.dtype, [&](auto t) {
    ByType(p.gamma_dtype, [&](auto g) { RmsNormForwardTyped<decltype(t), decltype(g)>(p, rows); });
  });
}

void RmsNormBackwardRows(const RmsNormBackwardParams& p, Range rows) {
  ByType(p.dtype, [&](auto t) {
    ByType(p.gamma_dtype, [&](auto g) { RmsNormBackwardTyped<decltype(t), decltype(g)>(p, rows); });
  });
}

void RmsNormBackwardGammaColumns(const RmsNormBackwardParams& p, Range columns) {
  ByType(p.dtype, [&](auto t) { RmsNormBackwardGammaTyped<decltype(t)>(p, columns); });
}

}  // namespace snug::kernels::SNUG_ISA
