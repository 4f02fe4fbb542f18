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

// Negative: the row has one label alone.
int64_t SecondLabelOf(const CrossEntropyParams& p, int64_t row, int64_t label) {
  if (p.second_labels == nullptr || label < 0) return -1;
  const int64_t second = IndexAt(p.second_labels, p.label_type, row);
  return second == label ? -1 : second;
}

struct Sums {
  double exponentials;  // sum_v e_v, e_v = exp(x[v] - max)
  double weighted;      // sum_v e_v (x[v] - max); where the entropy is wanted
};

// What the softmax is taken of: the logits as they are, or capped; and what the gradient is made
// of, of which the exponential and the cap's slope follow.
struct Plain {
  SNUG_INLINE F32x16 operator()(F32x16 logits) const { return logits; }
  SNUG_INLINE F32x16 Kept(F32x16, F32x16 exponential) const { return exponential; }
  SNUG_INLINE F32x16 Exponential(F32x16 kept, float) const { return kept; }
  SNUG_INLINE F32x16 Slope(F32x16) const { return Splat(1.0f); }
};

struct Capped {
  explicit Capped(float cap) : softcap(cap), inverse(1.0f / cap) {}
  const float softcap, inverse;
  SNUG_INLINE F32x16 operator()(F32x16 logits) const {
    return softcap * Tanh(logits * inverse).value;
  }
  SNUG_INLINE F32x16 Kept(F32x16 capped, F32x16) const { return capped; }
  SNUG_INLINE F32x16 Exponential(F32x16 capped, float max) const {
    return ExpFlushed(capped - max);
  }
  SNUG_INLINE F32x16 Slope(F32x16 capped) const {
    const F32x16 tanh = capped * inverse;
    return 1.0f - tanh * tanh;
  }
};

// One row. Leaves what the gradient is made of in `keep` unless it is null.
template <bool kEntropy, typename T, typename Cap>
Sums SumExp(const T* x, Cap cap, float max, int64_t n, float* keep) {
  // As far below as leaves an exponential of 0, and no NaN when multiplied by it.
  constexpr float kNothing = -200.0f;
  F32x16 weighted{};
  const double sum = Sum(n, [&](int64_t v, auto part) SNUG_LAMBDA {
    const F32x16 capped = cap(Load(x + v, part));
    const F32x16 below = FillBeyond(capped - max, part, kNothing);
    const F32x16 e = ExpFlushed(below);
    if constexpr (kEntropy) weighted += e * below;
    if (keep != nullptr) Store(keep + v, cap.Kept(capped, e), part);
    return e;
  });
  return {sum, static_cast<double>(SumLanes(weighted))};
}

// A label of a row.
struct Label {
  int64_t index = -1;  // Negative: none.
  double share = 0.0;  // Of 1, before smoothing.
  double logit = 0.0;  // Its logit less the maximum.
  float slope = 1.0f;  // Of the cap there.
};

// A row's softmax, where the gradient needs it.
struct Softmax {
  float max;
  float* keep;  // What Kept of the cap gives, or null.
  double sum;   // Of the exponentials.
  Label first, second;
  double scale;     // Of the gradient.
  double slope;     // Of the loss by lse: 1 + 2 z_loss lse.
  double smooth;    // What each class has of the labels' share.
  double unsmooth;  // What the labels have together beyond that.
};

template <typename T>
void GradientOfLabel(T* dx, const Softmax& row, const Label& label) {
  if (label.index < 0) return;
  const double d_label = row.scale * (std::exp(label.logit) / row.sum * row.slope -
                                      row.unsmooth * label.share - row.smooth);
  Store(dx + label.index, Splat(static_cast<float>(d_label) * label.slope), Part{1});
}

template <typename T, typename Cap>
void GradientOfRow(const T* x, T* dx, int64_t n, Cap cap, const Softmax& row) {
  const float factor = static_cast<float>(row.scale * row.slope / row.sum);
  const float smooth = static_cast<float>(row.scale * row.smooth);
  const float max = row.max, *const keep = row.keep;
  ForVectors(n, [&](int64_t v, auto part) SNUG_LAMBDA {
    F32x16 kept;
    if (keep != nullptr) {
      kept = Load(keep + v, part);
    } else {
      const F32x16 capped = cap(Load(x + v, part));
      kept = cap.Kept(capped, ExpFlushed(capped - max));
    }
    Store(dx + v, (cap.Exponential(kept, max) * factor - smooth) * cap.Slope(kept), part);
  });
  GradientOfLabel(dx, row, row.first);
  GradientOfLabel(dx, row, row.second);
}

template <typename T, typename Cap>
void ReadLabel(const T* x, Cap cap, float max, Label& label) {
  if (label.index < 0) return;
  const F32x16 capped = cap(Splat(Load(x + label.index, Part{1})[0]));
  label.logit = static_cast<double>(capped[0]) - max;
  label.slope = cap.Slope(capped)[0];
}

// Both labels of a row, where it has two.
template <typename T, typename Cap>
void ReadLabels(const CrossEntropyParams& p, int64_t i, const T* x, Cap cap, Softmax& row) {
  row.first = {.index = LabelOf(p, i), .share = 1.0};
  row.second.index = SecondLabelOf(p, i, row.first.index);
  if (row.second.index >= 0) {
    row.first.share = static_cast<double>(p.shares[i]);
    row.second.share = 1.0 - row.first.share;
  }
  ReadLabel(x, cap, row.max, row.first);
  ReadLabel(x, cap, row.max, row.second);
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
  Softmax row = {.max = cap(Splat(peak.max))[0], .keep = nullptr};
  ReadLabels(p, i, x, cap, row);
  const double given = p.weights == nullptr ? 1.0 : static_cast<double>(p.weights[i]);
  const double weight = row.first.index < 0 ? 0.0 : given;  // Without a label it has none.
  // In the gradient's place if that is fp32.
  if constexpr (std::is_same_v<T, float>) row.keep = dx;
  // Before something is kept where the logits may be.
  const double smoothing = static_cast<double>(p.label_smoothing);
  double target = row.first.logit;
  if (row.second.index >= 0) target += row.second.share * (row.second.logit - target);
  if (smoothing > 0.0) target += smoothing * (MeanBelow(x, cap, row.max, p.V) - target);
  const Sums sums = p.row_entropy == nullptr ? SumExp<false>(x, cap, row.max, p.V, row.keep)
                                             : SumExp<true>(x, cap, row.max, p.V, row.keep);
  row.sum = peak.finite ? sums.exponentials : static_cast<double>(NAN);
  const double lse = std::log(row.sum) + row.max, z_loss = static_cast<double>(p.z_loss);
  row.slope = 1.0 + 2.0 * z_loss * lse;
  row.smooth = smoothing / static_cast<double>(p.V);
  row.unsmooth = 1.0 - smoothing;
  p.row_loss[i] = weight * (std::log(row.sum) - target + z_loss * lse * lse);
  if (p.row_entropy != nullptr) p.row_entropy[i] = std::log(row.sum) - sums.weighted / row.sum;
  if (p.row_correct != nullptr)
    p.row_correct[i] = row.first.index >= 0 && row.first.logit >= 0.0 ? 1 : 0;
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
        RowTyped<decltype(t)>(p, row, Capped(p.softcap));
      }
    }
  });
}

}  // namespace snug::kernels::SNUG_ISA
