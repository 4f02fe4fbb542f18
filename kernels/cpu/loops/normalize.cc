// Inner loops of the normalisation of rows.
#include "kernels/normalize.h"

#include <cmath>

#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/output.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

// What a row's elements are counted from: its first element, and how far its mean lies from there,
// so that a large mean costs no digits. Both 0 for RMS norm.
struct Center {
  float first = 0.0f, drift = 0.0f;

  // Lanes that are not there become -drift.
  template <typename S, typename Extent>
  SNUG_INLINE F32x16 Subtracted(const S* x, Extent extent) const {
    return (LoadOr(x, extent, first) - first) - drift;
  }
};

template <typename S>
SNUG_INLINE Center CenterOf(const S* x, int64_t C, Norm norm) {
  Center center;
  if (norm == Norm::kRms) return center;
  center.first = ToFloat(x[0]);
  const double sum =
      Sum(C, [&](int64_t c, auto part) SNUG_LAMBDA { return center.Subtracted(x + c, part); });
  center.drift = static_cast<float>(sum / static_cast<double>(C));
  return center;
}

template <typename T, typename S>
SNUG_INLINE const S* AddResidual(const NormalizeForwardParams& p, int64_t i) {
  const T* x = RowOf<T>(p.x, i, p.x_stride);
  const S* residual = RowOf<S>(p.residual, i, p.residual_stride);
  S* h = RowOf<S>(p.h, i, p.h_stride);
  ForVectors(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
    Store(h + c, Load(residual + c, part) + Load(x + c, part), part);
  });
  return h;
}

// T: of xhat and z, S: of the input.
template <typename T, typename S>
void ForwardTyped(const NormalizeForwardParams& p, Range rows) {
  const bool in_place = p.x == p.xhat || p.x == p.z;
  const int64_t outputs = in_place ? 0 : (p.xhat == nullptr ? 0 : 1) + (p.z == nullptr ? 0 : 1);
  const Output out(outputs * p.N * p.C * static_cast<int64_t>(sizeof(T)));
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const S* x = p.residual == nullptr ? RowOf<S>(p.x, i, p.x_stride) : AddResidual<T, S>(p, i);
    T* xhat = p.xhat == nullptr ? nullptr : RowOf<T>(p.xhat, i, p.xhat_stride);
    T* z = p.z == nullptr ? nullptr : RowOf<T>(p.z, i, p.z_stride);
    const Center center = CenterOf(x, p.C, p.norm);
    const double squares = Sum(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
      const F32x16 v = center.Subtracted(x + c, part);
      return FillBeyond(v * v, part, 0.0f);
    });
    const float r = static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(p.C) + p.eps));
    if (p.r != nullptr) p.r[i] = r;
    const float offset = p.offset;
    ByType(z == nullptr ? DType::kF32 : p.gamma_dtype, [&](auto g) {
      const auto* gamma = static_cast<const decltype(g)*>(p.gamma);
      const auto* beta = static_cast<const decltype(g)*>(p.beta);
      ForVectors(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
        F32x16 v = center.Subtracted(x + c, part) * r;
        if (xhat != nullptr) out.Put(xhat + c, v, part);
        if (z == nullptr) return;
        if (p.round_xhat) v = Rounded<T>(v);
        v = v * (offset + Load(gamma + c, part));
        if (beta != nullptr) v += Load(beta + c, part);
        out.Put(z + c, v, part);
      });
    });
  }
}

// G: of gamma.
template <typename T, typename S, typename G>
void BackwardTyped(const NormalizeBackwardParams& p, Range rows) {
  const auto* gamma = static_cast<const G*>(p.gamma);
  const float offset = p.offset;
  const bool in_place = p.accumulate || p.dx == p.dxhat;
  const Output out(in_place ? 0 : p.N * p.C * static_cast<int64_t>(sizeof(S)));
  const auto mean = [&](double sum) { return static_cast<float>(sum / static_cast<double>(p.C)); };
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* dxhat = RowOf<T>(p.dxhat, i, p.dxhat_stride);
    const T* xhat = p.xhat == nullptr ? nullptr : RowOf<T>(p.xhat, i, p.xhat_stride);
    const S* x = xhat != nullptr ? nullptr : RowOf<S>(p.x, i, p.x_stride);
    S* dx = RowOf<S>(p.dx, i, p.dx_stride);
    const float r = p.r[i];
    const Center center = x == nullptr ? Center{} : CenterOf(x, p.C, p.norm);
    const auto gradient = [&](int64_t c, auto part) SNUG_LAMBDA {
      const F32x16 g = Load(dxhat + c, part);
      return gamma == nullptr ? g : g * (offset + Load(gamma + c, part));
    };
    const auto normalized = [&](int64_t c, auto part) SNUG_LAMBDA {
      if (xhat != nullptr) return Load(xhat + c, part);
      return FillBeyond(center.Subtracted(x + c, part) * r, part, 0.0f);
    };
    double sums[2] = {};  // Of the gradient by what is normalised, and of the gradient.
    if (p.norm == Norm::kRms) {
      sums[0] = Sum(p.C, [&](int64_t c, auto part)
                             SNUG_LAMBDA { return gradient(c, part) * normalized(c, part); });
    } else {
      const auto both = [&](int64_t c, auto part) SNUG_LAMBDA {
        const F32x16 g = gradient(c, part);
        return Terms<2>{{g * normalized(c, part), g}};
      };
      SumEach(p.C, both, sums);
    }
    const float dot = mean(sums[0]), shift = mean(sums[1]);
    ForVectors(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
      F32x16 v = ((gradient(c, part) - shift) - normalized(c, part) * dot) * r;
      if (p.accumulate) v += Load(dx + c, part);
      out.Put(dx + c, v, part);
    });
  }
}

// body(T{}, S{}): the type of the rest and that of the input.
template <typename Body>
void ByTypes(DType dtype, bool wide, Body body) {
  ByType(dtype, [&](auto t) {
    if (wide) {
      body(t, float{});
    } else {
      body(t, t);
    }
  });
}

}  // namespace

void NormalizeForwardRows(const NormalizeForwardParams& p, Range rows) {
  ByTypes(p.dtype, p.wide,
          [&](auto t, auto s) { ForwardTyped<decltype(t), decltype(s)>(p, rows); });
}

void NormalizeBackwardRows(const NormalizeBackwardParams& p, Range rows) {
  ByTypes(p.dtype, p.wide, [&](auto t, auto s) {
    ByType(p.gamma == nullptr ? DType::kF32 : p.gamma_dtype,
           [&](auto g) { BackwardTyped<decltype(t), decltype(s), decltype(g)>(p, rows); });
  });
}

}  // namespace snug::kernels::SNUG_ISA
