// Inner loops of softmax cross-entropy: three passes over a row (maximum, sum, gradient).
#include <cmath>
#include <type_traits>

#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/exp.h"
#include "kernels/cpu/loops/peak.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/tanh.h"
#include "kernels/cpu/loops/vector.h"
#include "kernels/cross_entropy.h"

namespace snug::kernels::SNUG_ISA {
namespace {

// Negative: none.
int64_t LabelOf(const CrossEntropyParams& p, int64_t row) {
  const int64_t label = IndexAt(p.labels, p.label_type, row);
  return label == p.ignore_label ? -1 : label;
}

struct Sums {
  double exponentials;  // sum_v e_v, e_v = exp(x[v] - max)
  double weighted;      // sum_v e_v (x[v] - max); where the entropy is wanted
};

// What the softmax is taken of: the logits as they are, or capped.
struct Plain {
  SNUG_INLINE F32x16 operator()(F32x16 logits) const { return logits; }
  SNUG_INLINE F32x16 Slope(F32x16) const { return Splat(1.0f); }
};

struct Capped {
  float softcap;
  SNUG_INLINE F32x16 operator()(F32x16 logits) const {
    return softcap * Tanh(logits / softcap).value;
  }
  SNUG_INLINE F32x16 Slope(F32x16 logits) const { return Tanh(logits / softcap).slope; }
};

// One row. Leaves the exponentials in `keep` unless it is null.
template <bool kEntropy, typename T, typename Cap>
Sums SumExp(const T* x, Cap cap, float max, int64_t n, float* keep) {
  // As far below as leaves an exponential of 0, and no NaN when multiplied by it.
  constexpr float kNothing = -200.0f;
  F32x16 weighted{};
  const double sum = Sum(n, [&](int64_t v, auto part) SNUG_LAMBDA {
    const F32x16 below = FillBeyond(cap(Load(x + v, part)) - max, part, kNothing);
    const F32x16 e = ExpFlushed(below);
    if constexpr (kEntropy) weighted += e * below;
    if (keep != nullptr) Store(keep + v, e, part);
    return e;
  });
  return {sum, static_cast<double>(SumLanes(weighted))};
}

// A row's softmax, where the gradient needs it.
struct Softmax {
  float max;
  float* keep;    // The exponentials, or null.
  double sum;     // Of the exponentials.
  double logit;   // The label's, less the maximum.
  int64_t label;  // Negative: none.
  double scale;   // Of the gradient.
  double slope;   // Of the loss by lse: 1 + 2 z_loss lse.
  double smooth;  // What each class has of the label's share.
  double share;   // What the label has beyond that.
};

template <typename T, typename Cap>
void GradientOfRow(const T* x, T* dx, int64_t n, Cap cap, const Softmax& row) {
  const float factor = static_cast<float>(row.scale * row.slope / row.sum);
  const float smooth = static_cast<float>(row.scale * row.smooth);
  const F32x16 slope = row.label < 0 ? F32x16{} : cap.Slope(Splat(Load(x + row.label, Part{1})[0]));
  ForVectors(n, [&](int64_t v, auto part) SNUG_LAMBDA {
    if (row.keep != nullptr) {
      Store(dx + v, Load(row.keep + v, part) * factor - smooth, part);
    } else {
      const F32x16 logits = Load(x + v, part);
      Store(dx + v, (ExpFlushed(cap(logits) - row.max) * factor - smooth) * cap.Slope(logits),
            part);
    }
  });
  if (row.label < 0) return;
  const double d_label =
      row.scale * (std::exp(row.logit) / row.sum * row.slope - row.share - row.smooth);
  Store(dx + row.label, Splat(static_cast<float>(d_label)) * slope, Part{1});
}

// The mean of the row, less the maximum.
template <typename T, typename Cap>
double MeanBelow(const T* x, Cap cap, float max, int64_t n) {
  const double sum = Sum(n, [&](int64_t v, auto part) SNUG_LAMBDA {
    return FillBeyond(cap(Load(x + v, part)) - max, part, 0.0f);
  });
  return sum / static_cast<double>(n);
}

template <typename T, typename Cap>
void RowTyped(const CrossEntropyParams& p, int64_t i, Cap cap) {
  const T* x = RowOf<T>(p.logits, i, p.logits_stride);
  T* dx = p.dlogits == nullptr ? nullptr : RowOf<T>(p.dlogits, i, p.dlogits_stride);
  const Peak peak = PeakOf(x, p.V);
  Softmax row = {.max = cap(Splat(peak.max))[0], .keep = nullptr, .label = LabelOf(p, i)};
  const double given = p.weights == nullptr ? 1.0 : static_cast<double>(p.weights[i]);
  const double weight = row.label < 0 ? 0.0 : given;
  // Exponentials are kept in the gradient's place if it is fp32 and the logits are not needed
  // again.
  if constexpr (std::is_same_v<T, float> && std::is_same_v<Cap, Plain>) row.keep = dx;
  // A row without a label has weight 0.
  row.logit = row.label < 0
                  ? 0.0
                  : static_cast<double>(cap(Splat(Load(x + row.label, Part{1})[0]))[0]) - row.max;
  // Before exponentials are kept where the logits may be.
  const double smoothing = static_cast<double>(p.label_smoothing);
  double target = row.logit;
  if (smoothing > 0.0) target += smoothing * (MeanBelow(x, cap, row.max, p.V) - row.logit);
  const Sums sums = p.row_entropy == nullptr ? SumExp<false>(x, cap, row.max, p.V, row.keep)
                                             : SumExp<true>(x, cap, row.max, p.V, row.keep);
  row.sum = peak.finite ? sums.exponentials : static_cast<double>(NAN);
  const double lse = std::log(row.sum) + row.max, z_loss = static_cast<double>(p.z_loss);
  row.slope = 1.0 + 2.0 * z_loss * lse;
  row.smooth = smoothing / static_cast<double>(p.V);
  row.share = 1.0 - smoothing;
  p.row_loss[i] = weight * (std::log(row.sum) - target + z_loss * lse * lse);
  if (p.row_entropy != nullptr) p.row_entropy[i] = std::log(row.sum) - sums.weighted / row.sum;
  if (p.row_correct != nullptr) p.row_correct[i] = row.label >= 0 && row.logit >= 0.0 ? 1 : 0;
  row.scale = weight * static_cast<double>(p.scale);
  if (dx != nullptr) GradientOfRow(x, dx, p.V, cap, row);
}

}  // namespace

void CrossEntropyRows(const CrossEntropyParams& p, Range rows) {
  ByType(p.dtype, [&](auto t) {
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      if (p.softcap == 0.0f) {
        RowTyped<decltype(t)>(p, row, Plain{});
      } else {
        RowTyped<decltype(t)>(p, row, Capped{p.softcap});
      }
    }
  });
}

}  // namespace snug::kernels::SNUG_ISA
