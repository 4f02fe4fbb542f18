// Inner loops of the softmax of attention scores: three passes over a row's visible span (maximum,
// sum, probabilities), of which the last two read what the first brought into the cache.
#include "kernels/softmax.h"

#include <cstring>
#include <type_traits>

#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/exp.h"
#include "kernels/cpu/loops/output.h"
#include "kernels/cpu/loops/peak.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/tanh.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

using softmax::Span;

constexpr float kHidden = -3.2e38f;  // Finite, so that differences of two are no NaN.
constexpr float kNothing = -3.0e38f;
constexpr int64_t kKept = 4096;  // Of a row; on the stack, half of L1.

// Sixteen bytes as numbers; 0 for those that are not there.
template <typename Extent>
SNUG_INLINE I32x16 LoadBytes(const uint8_t* from, Extent extent) {
  U8x16 bytes{};
  if constexpr (std::is_same_v<Extent, Whole>) {
    memcpy(&bytes, from, sizeof(bytes));
  } else {
    memcpy(&bytes, from, extent.count);
  }
  return Widened(bytes);
}

// All ones where a key is visible.
template <typename Extent>
SNUG_INLINE I32x16 VisibleOf(const uint8_t* keys, Extent extent) {
  return -LoadBytes(keys, extent) >> 31;
}

// The scores of a row.
template <typename T>
struct Scores {
  const SoftmaxForwardParams& p;
  const T* x;
  const uint8_t* keys;
  int64_t bias_row;  // Its first element.

  // The largest of them, or kHidden.
  float Max(Span span) const {
    const int64_t n = span.end - span.begin;
    if (n > 0 && p.scale > 0.0f && p.softcap == 0.0f && p.bias == nullptr && keys == nullptr) {
      const float max = PeakOf(x + span.begin, n).max * p.scale;  // Scaling keeps the order.
      return max < kHidden ? kHidden : max;
    }
    F32x16 largest = Splat(kHidden);
    ForVectors(n, [&](int64_t i, auto part)
                      SNUG_LAMBDA { largest = MaxOf(largest, (*this)(span.begin + i, part)); });
    return MaxLane(largest);
  }

  template <typename Extent>
  SNUG_INLINE F32x16 operator()(int64_t c, Extent extent) const {
    F32x16 s = Load(x + c, extent) * p.scale;
    if (p.softcap > 0.0f) s = p.softcap * Tanh(s / p.softcap).value;
    if (p.bias != nullptr) s += LoadAny(p.bias, p.bias_dtype, bias_row + c, extent);
    if (keys != nullptr) s = Select(VisibleOf(keys + c, extent), s, Splat(kHidden));
    return FillBeyond(s, extent, kHidden);
  }
};

template <typename T>
void ForwardRow(const Scores<T>& scores, T* y, Span span, int64_t C) {
  const int64_t n = span.end - span.begin;
  const float max = scores.Max(span);
  // Exponentials are kept, unless the row is too long for that: in p if it is fp32.
  float kept[kKept];
  float* keep = n <= kKept ? kept : nullptr;
  if constexpr (std::is_same_v<T, float>) keep = y + span.begin;
  const auto e = [&](int64_t i, auto part)
                     SNUG_LAMBDA { return ExpFlushed(scores(span.begin + i, part) - max); };
  const double sum = Sum(n, [&](int64_t i, auto part) SNUG_LAMBDA {
    const F32x16 v = e(i, part);
    if (keep != nullptr) Store(keep + i, v, part);
    return v;
  });
  const bool nothing = max < kNothing && sum == sum;  // A NaN shows.
  const float inverse = nothing ? 0.0f : static_cast<float>(1.0 / sum);
  ForVectors(n, [&](int64_t i, auto part) SNUG_LAMBDA {
    const F32x16 v = keep != nullptr ? Load(keep + i, part) : e(i, part);
    Store(y + span.begin + i, v * inverse, part);
  });
  memset(y, 0, span.begin * sizeof(T));
  memset(y + span.end, 0, (C - span.end) * sizeof(T));
}

template <typename T>
void ForwardTyped(const SoftmaxForwardParams& p, Range rows) {
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const Scores<T> scores = {p, RowOf<T>(p.x, i, p.x_stride), softmax::KeysOf(p.mask, i),
                              i % (p.mask.heads * p.mask.queries) * p.bias_stride};
    ForwardRow(scores, RowOf<T>(p.p, i, p.p_stride), softmax::SpanOf(p.mask, i, p.C), p.C);
  }
}

// A row's probabilities: as they are, or from codes.
template <typename T>
struct Probabilities {
  const T* p;
  const uint8_t* codes;  // Where `p` is null.
  float step, minimum;

  template <typename Extent>
  SNUG_INLINE F32x16 operator()(int64_t c, Extent extent) const {
    if (p != nullptr) return Load(p + c, extent);
    const F32x16 code = Convert<F32x16>(LoadBytes(codes + c, extent));
    return FillBeyond(minimum + step * code, extent, 0.0f);
  }
};

template <typename T>
void BackwardRow(const SoftmaxBackwardParams& p, int64_t row, const Probabilities<T>& y,
                 const Output& out) {
  const Span span = softmax::SpanOf(p.mask, row, p.C);
  const int64_t n = span.end - span.begin;
  const uint8_t* keys = softmax::KeysOf(p.mask, row);
  const T* dy = RowOf<T>(p.dp, row, p.dp_stride);
  const T* x = p.softcap > 0.0f ? RowOf<T>(p.x, row, p.x_stride) : nullptr;
  T* dx = RowOf<T>(p.dx, row, p.dx_stride);
  const auto visible = [&](F32x16 v, int64_t c, auto part) SNUG_LAMBDA {
    return keys == nullptr ? v : Select(VisibleOf(keys + c, part), v, F32x16{});
  };
  const double dot = Sum(n, [&](int64_t i, auto part) SNUG_LAMBDA {
    const int64_t c = span.begin + i;
    return visible(y(c, part) * Load(dy + c, part), c, part);
  });
  ForVectors(n, [&](int64_t i, auto part) SNUG_LAMBDA {
    const int64_t c = span.begin + i;
    F32x16 v = y(c, part) * (Load(dy + c, part) - static_cast<float>(dot)) * p.scale;
    if (x != nullptr) v *= Tanh(Load(x + c, part) * p.scale / p.softcap).slope;
    out.Put(dx + c, visible(v, c, part), part);
  });
  memset(dx, 0, span.begin * sizeof(T));
  memset(dx + span.end, 0, (p.C - span.end) * sizeof(T));
}

template <typename T>
void BackwardTyped(const SoftmaxBackwardParams& p, Range rows) {
  const bool in_place = p.dx == p.dp || p.dx == p.p || p.dx == p.x;
  const Output out(in_place ? 0 : p.N * p.C * static_cast<int64_t>(sizeof(T)));
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    Probabilities<T> y = {};
    if (p.codes == nullptr) {
      y.p = RowOf<T>(p.p, i, p.p_stride);
    } else {
      const int64_t group = i / p.rows_per_group % p.groups;
      y = {nullptr, p.codes + i * p.codes_stride, p.step[group], p.minimum[group]};
    }
    BackwardRow<T>(p, i, y, out);
  }
}

}  // namespace

void SoftmaxForwardRows(const SoftmaxForwardParams& p, Range rows) {
  ByType(p.dtype, [&](auto t) { ForwardTyped<decltype(t)>(p, rows); });
}

void SoftmaxBackwardRows(const SoftmaxBackwardParams& p, Range rows) {
  ByType(p.dtype, [&](auto t) { BackwardTyped<decltype(t)>(p, rows); });
}

}  // namespace snug::kernels::SNUG_ISA
