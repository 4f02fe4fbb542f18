// Inner loops of softmax cross-entropy: three passes over a row (maximum, sum, gradient).
#include <cmath>
#include <type_traits>

#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/entries.h"
#include "kernels/cpu/loops/exp.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

struct Peak {
  float max;
  float probe;  // 0, or NaN if any element is not finite.
};

template <typename T>
Peak PeakOf(const T* x, int64_t n) {
  const float first = Load(x, Part{1})[0];
  F32x16 max = Splat(first), probe{};
  ForVectors(n, [&](int64_t v, auto part) SNUG_LAMBDA {
    const F32x16 value = LoadOr(x + v, part, first);
    max = Select(SignMask(max - value), value, max);
    probe += value * 0.0f;
  });
  Peak peak = {max[0], SumLanes(probe)};
  for (int64_t lane = 1; lane < kLanes; ++lane) {
    if (max[lane] > peak.max) peak.max = max[lane];
  }
  return peak;
}

int64_t LabelOf(const CrossEntropyParams& p, int64_t row) {
  return p.label_type == IndexType::kI32 ? static_cast<const int32_t*>(p.labels)[row]
                                         : static_cast<const int64_t*>(p.labels)[row];
}

struct Sums {
  double exponentials;  // sum_v e_v, e_v = exp(x[v] - max)
  double weighted;      // sum_v e_v (x[v] - max); where the entropy is wanted
};

// Leaves the exponentials in `keep` unless it is null.
template <bool kEntropy, typename T>
Sums SumExp(const T* x, float max, int64_t n, float* keep) {
  // As far below as leaves an exponential of 0, and no NaN when multiplied by it.
  constexpr float kNothing = -200.0f;
  F32x16 weighted{};
  const double sum = Sum(n, [&](int64_t v, auto part) SNUG_LAMBDA {
    const F32x16 below = LoadOr(x + v, part, max + kNothing) - max;
    const F32x16 e = Exp(below);
    if constexpr (kEntropy) weighted += e * below;
    if (keep != nullptr) Store(keep + v, e, part);
    return e;
  });
  return {sum, static_cast<double>(SumLanes(weighted))};
}

template <typename T>
void RowTyped(const CrossEntropyParams& p, int64_t row) {
  const T* x = RowOf<T>(p.logits, row, p.logits_stride);
  const int64_t label = LabelOf(p, row);
  const double weight = p.weights == nullptr ? 1.0 : static_cast<double>(p.weights[row]);
  const Peak peak = PeakOf(x, p.V);
  // Of the label, less the maximum. A row without a label has weight 0.
  const double logit =
      label < 0 ? 0.0 : static_cast<double>(Load(x + label, Part{1})[0]) - peak.max;
  T* dx = p.dlogits == nullptr ? nullptr : RowOf<T>(p.dlogits, row, p.dlogits_stride);
  float* keep = nullptr;  // Exponentials are kept in the gradient's place if it is fp32.
  if constexpr (std::is_same_v<T, float>) keep = dx;
  const Sums sums = p.row_entropy == nullptr ? SumExp<false>(x, peak.max, p.V, keep)
                                             : SumExp<true>(x, peak.max, p.V, keep);
  const double sum = peak.probe + sums.exponentials;
  p.row_loss[row] = weight * (std::log(sum) - logit);
  if (p.row_entropy != nullptr) p.row_entropy[row] = std::log(sum) - sums.weighted / sum;
  if (p.row_correct != nullptr) p.row_correct[row] = label >= 0 && logit >= 0.0 ? 1 : 0;
  if (dx == nullptr) return;
  const double scale = weight * static_cast<double>(p.scale);
  const float factor = static_cast<float>(scale / sum);
  ForVectors(p.V, [&](int64_t v, auto part) SNUG_LAMBDA {
    const F32x16 e = keep != nullptr ? Load(keep + v, part) : Exp(Load(x + v, part) - peak.max);
    Store(dx + v, e * factor, part);
  });
  if (label < 0) return;
  const double d_label = scale * (std::exp(logit) / sum - 1.0);
  Store(dx + label, Splat(static_cast<float>(d_label)), Part{1});
}

}  // namespace

void CrossEntropyRows(const CrossEntropyParams& p, Range rows) {
  ByType(p.dtype, [&](auto t) {
    for (int64_t row = rows.begin; row < rows.end; ++row) RowTyped<decltype(t)>(p, row);
  });
}

}  // namespace snug::kernels::SNUG_ISA
