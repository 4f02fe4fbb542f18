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
    ForVectors(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
      F32x16 v = center.Subtracted(x + c, part) * r;
      if (xhat != nullptr) out.Put(xhat + c, v, part);
      if (z == nullptr) return;
      if (p.round_xhat) v = Rounded<T>(v);
      v = v * (p.offset + LoadAny(p.gamma, p.gamma_dtype, c, part));
      if (p.beta != nullptr) v += LoadAny(p.beta, p.gamma_dtype, c, part);
      out.Put(z + c, v, part);
    });
  }
}

struct Two {
  F32x16 first, second;
};

// Two sums in one pass, each added up as Sum does it.
template <typename Terms>
SNUG_INLINE void SumBoth(int64_t n, Terms terms, double& first, double& second) {
  first = second = 0.0;
  for (int64_t block = 0; block < n; block += kSumBlock) {
    const int64_t end = n - block < kSumBlock ? n : block + kSumBlock;
    F32x16 a[4] = {}, b[4] = {};
    const auto add = [&](int chain, int64_t i, auto part) SNUG_LAMBDA {
      const Two both = terms(i, part);
      a[chain] += both.first;
      b[chain] += both.second;
    };
    int64_t i = block;
    for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
#pragma GCC unroll 4
      for (int chain = 0; chain < 4; ++chain) add(chain, i + chain * kLanes, Whole{});
    }
    for (; i + kLanes <= end; i += kLanes) add(0, i, Whole{});
    if (i < end) add(1, i, Part{end - i});
    first += static_cast<double>(SumLanes((a[0] + a[1]) + (a[2] + a[3])));
    second += static_cast<double>(SumLanes((b[0] + b[1]) + (b[2] + b[3])));
  }
}

template <typename T, typename S>
void BackwardTyped(const NormalizeBackwardParams& p, Range rows) {
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
      if (p.gamma == nullptr) return g;
      return g * (p.offset + LoadAny(p.gamma, p.gamma_dtype, c, part));
    };
    const auto normalized = [&](int64_t c, auto part) SNUG_LAMBDA {
      if (xhat != nullptr) return Load(xhat + c, part);
      return FillBeyond(center.Subtracted(x + c, part) * r, part, 0.0f);
    };
    double dots = 0.0, sum = 0.0;
    if (p.norm == Norm::kRms) {
      dots = Sum(p.C, [&](int64_t c, auto part)
                          SNUG_LAMBDA { return gradient(c, part) * normalized(c, part); });
    } else {
      const auto both = [&](int64_t c, auto part) SNUG_LAMBDA {
        const F32x16 g = gradient(c, part);
        return Two{g * normalized(c, part), g};
      };
      SumBoth(p.C, both, dots, sum);
    }
    const float dot = mean(dots), shift = mean(sum);
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
  ByTypes(p.dtype, p.wide,
          [&](auto t, auto s) { BackwardTyped<decltype(t), decltype(s)>(p, rows); });
}

}  // namespace snug::kernels::SNUG_ISA
