// Inner loops of attention: softmax and its gradient on tiles of scores. Compiled with fused
// multiply-adds where the instruction set has them (kernels/CMakeLists.txt).
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/entries.h"
#include "kernels/cpu/loops/exp.h"
#include "kernels/cpu/loops/random.h"
#include "kernels/cpu/loops/vector.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace snug::kernels::SNUG_ISA {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

// `x`, but `limit` (negative) where it is below; NaN stays NaN.
SNUG_INLINE F32x16 AtLeast(float limit, F32x16 x) {
  const I32x16 bits = As<I32x16>(x);
  const I32x16 magnitude = bits & 0x7fffffff;
  const I32x16 limit_bits = As<I32x16>(Splat(-limit));
  const I32x16 below =
      (bits >> 31) & ((limit_bits - magnitude) >> 31) & ~((0x7f800000 - magnitude) >> 31);
  return Select(below, Splat(limit), x);
}

struct Power {
  F32x16 two_to_n;  // 0 for n = -127.
  F32x16 r;         // x - n ln 2
};

SNUG_INLINE Power Reduce(F32x16 x) {
  const F32x16 rounded = x * kLog2E + kRound;
  const F32x16 n = rounded - kRound;
  const U32x16 exponent = (As<U32x16>(rounded) << 23) + 0x3f800000u;
  return {As<F32x16>(exponent), (x - n * kLn2High) - n * kLn2Low};
}

// exp(x) for x <= 88, 0 for x < -87.6; NaN stays NaN.
SNUG_INLINE F32x16 ExpOfScore(F32x16 x) {
  const Power power = Reduce(AtLeast(-88.0f, x));
  const F32x16 r = power.r;
  return ((ExpTail(r) * r) * r + r + 1.0f) * power.two_to_n;
}

// By exp(-2 |y|) - 1, which loses nothing to cancellation near 0.
SNUG_INLINE F32x16 Tanh(F32x16 y) {
  const I32x16 sign = As<I32x16>(y) & ~0x7fffffff;
  const F32x16 magnitude = As<F32x16>(As<I32x16>(y) & 0x7fffffff);
  const Power power = Reduce(AtLeast(-40.0f, magnitude * -2.0f));
  const F32x16 r = power.r;
  const F32x16 less_one = ((ExpTail(r) * r) * r + r) * power.two_to_n + (power.two_to_n - 1.0f);
  const F32x16 tanh = -less_one / (less_one + 2.0f);
  return As<F32x16>(As<I32x16>(tanh) | sign);
}

// All ones in the lanes of columns c .. c + 15 that lie outside [begin, end).
SNUG_INLINE I32x16 Outside(int64_t c, int64_t begin, int64_t end) {
  const I32x16 lane = I32x16Value{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const I32x16 column = lane + static_cast<int32_t>(c);
  return ((column - static_cast<int32_t>(begin)) | (static_cast<int32_t>(end) - 1 - column)) >> 31;
}

// The columns of [0, columns) that row `row` sees.
struct Visible {
  int64_t begin, end;
  Visible(Band band, int64_t row, int64_t columns)
      : begin(row + band.low > 0 ? row + band.low : 0),
        end(row + band.high < columns ? row + band.high : columns) {
    if (band.end < end) end = band.end;
  }
  bool whole(int64_t c) const { return c >= begin && c + kLanes <= end; }
  bool none() const { return begin >= end; }
};

template <bool kCap>
SNUG_INLINE F32x16 Score(F32x16 product, const ScoreRule& rule) {
  if constexpr (!kCap) return product * rule.scale;
  return Tanh(product * (rule.scale / rule.softcap)) * rule.softcap;
}

#if defined(__AVX512BF16__)
SNUG_INLINE U16x16 Halves(F32x16 v) {
  return reinterpret_cast<U16x16>(_mm512_cvtneps_pbh(reinterpret_cast<__m512>(v)));
}
#else  // Not called there.
SNUG_INLINE U16x16 Halves(F32x16) { return U16x16{}; }
#endif

// Sixteen bf16 from element c of the row on.
SNUG_INLINE void StoreHalves(float* row, int64_t c, U16x16 halves) {
  memcpy(reinterpret_cast<bf16*>(row) + c, &halves, sizeof(halves));
}
SNUG_INLINE F32x16 Interleaved(U16x16 low, U16x16 high) {
  return As<F32x16>(Widened(low) | (Widened(high) << 16));
}

SNUG_INLINE I32x16 Keep(const Kept& kept, int64_t row, int64_t c) {
  return FromMemory<I32x16>(kept.keep + row * kept.stride + c);
}

template <bool kCap, bool kBias>
void SoftmaxRow(const SoftmaxTile& p, int64_t row) {
  float* scores = p.scores + row * p.stride;
  const Visible visible(p.band, row, p.columns);
  if (visible.none()) {
    for (int64_t c = 0; c < p.columns; c += kLanes) Store(scores + c, F32x16{}, Whole{});
    return;
  }
  F32x16 max_lanes = Splat(kMinusInfinity);
  for (int64_t c = 0; c < p.columns; c += kLanes) {
    F32x16 score = Score<kCap>(Load(scores + c, Whole{}), p.rule);
    if constexpr (kBias) score += Load(p.bias + row * p.bias_step + c, Whole{});
    if (!visible.whole(c)) {
      score = Select(Outside(c, visible.begin, visible.end), Splat(kMinusInfinity), score);
    }
    max_lanes = MaxOf(max_lanes, score);
    Store(scores + c, score, Whole{});
  }
  const float before = p.max[row], here = MaxLane(max_lanes);
  const float max = here > before ? here : before;
  F32x16 sums{};
  for (int64_t c = 0; c < p.columns; c += kLanes) {
    F32x16 e = ExpOfScore(Load(scores + c, Whole{}) - max);
    sums += e;
    if (p.kept.keep != nullptr) e = Select(Keep(p.kept, row, c), e, F32x16{});
    if (p.pairs) {
      StoreHalves(scores, c, Halves(e));
    } else {
      Store(scores + c, e, Whole{});
    }
  }
  p.max[row] = max;
  if (max == before) {
    p.sum[row] += SumLanes(sums);
    return;
  }
  const F32x16 factor = Splat(ExpOfScore(Splat(before - max))[0]);
  p.sum[row] = p.sum[row] * factor[0] + SumLanes(sums);
  float* out = p.out + row * p.out_width;
  for (int64_t c = 0; c < p.out_width; c += kLanes)
    Store(out + c, Load(out + c, Whole{}) * factor, Whole{});
}

// p and ds of sixteen columns of a row.
struct Gradient {
  F32x16 p, ds;
};

// A row's constants, and what it sees.
struct GradientRow {
  const float* scores;
  const float* dp;
  float lse, delta;
  int64_t row;
  Visible visible;
  GradientRow(const GradientTile& p, int64_t row)
      : scores(p.scores + row * p.stride),
        dp(p.dp + row * p.stride),
        lse(p.lse[row * p.lse_stride]),
        delta(p.delta[row]),
        row(row),
        visible(p.band, row, p.columns) {}
};

template <bool kCap, bool kBias>
SNUG_INLINE Gradient GradientAt(const GradientTile& p, const GradientRow& row, int64_t c) {
  const F32x16 score = Score<kCap>(Load(row.scores + c, Whole{}), p.rule);
  F32x16 biased = score;
  if constexpr (kBias) biased += Load(p.bias + row.row * p.bias_step + c, Whole{});
  Gradient g;
  const F32x16 log_p = biased - row.lse;
  g.p = ExpOfScore(Select(log_p > F32x16{}, F32x16{}, log_p));
  F32x16 dp = Load(row.dp + c, Whole{}), kept_p = g.p;
  if (p.kept.keep != nullptr) {
    const I32x16 keep = Keep(p.kept, row.row, c);
    dp = Select(keep, dp * p.kept.factor, F32x16{});
    kept_p = Select(keep, g.p * p.kept.factor, F32x16{});
  }
  g.ds = g.p * (dp - row.delta);
  g.p = kept_p;
  F32x16 of_bias = g.ds;
  if constexpr (kCap) {
    const F32x16 tanh = score * (1.0f / p.rule.softcap);
    g.ds *= 1.0f - tanh * tanh;
  }
  if (!row.visible.whole(c)) {
    const I32x16 outside = Outside(c, row.visible.begin, row.visible.end);
    g.p = Select(outside, F32x16{}, g.p);
    g.ds = Select(outside, F32x16{}, g.ds);
    of_bias = Select(outside, F32x16{}, of_bias);
  }
  if constexpr (kBias) {
    if (p.d_bias != nullptr) {
      float* sums = p.d_bias + row.row * p.bias_step + c;
      Store(sums, Load(sums, Whole{}) + of_bias, Whole{});
    }
  }
  return g;
}

template <bool kCap, bool kBias>
void GradientRows(const GradientTile& p) {
  for (int64_t r = 0; r < p.rows; ++r) {
    const GradientRow row(p, r);
    for (int64_t c = 0; c < p.columns; c += kLanes) {
      const Gradient g = GradientAt<kCap, kBias>(p, row, c);
      Store(p.scores + r * p.stride + c, g.p, Whole{});
      Store(p.dp + r * p.stride + c, g.ds, Whole{});
    }
  }
}

// Two rows at a time; the last may be alone.
template <bool kCap, bool kBias>
void GradientPairs(const GradientTile& p) {
  for (int64_t r = 0; r < p.rows; r += 2) {
    const bool both = r + 1 < p.rows;
    const GradientRow even(p, r), odd(p, both ? r + 1 : r);
    for (int64_t c = 0; c < p.columns; c += kLanes) {
      const Gradient e = GradientAt<kCap, kBias>(p, even, c);
      const U16x16 e_ds = Halves(e.ds);
      U16x16 o_p{}, o_ds{};
      if (both) {
        const Gradient o = GradientAt<kCap, kBias>(p, odd, c);
        o_p = Halves(o.p);
        o_ds = Halves(o.ds);
        StoreHalves(p.ds_rows + (r + 1) * p.ds_stride, c, o_ds);
      }
      StoreHalves(p.ds_rows + r * p.ds_stride, c, e_ds);
      Store(p.scores + r * p.stride + c, Interleaved(Halves(e.p), o_p), Whole{});
      Store(p.dp + r * p.stride + c, Interleaved(e_ds, o_ds), Whole{});
    }
  }
}

template <bool kCap, bool kBias>
void GradientTyped(const GradientTile& p) {
  if (p.pairs) {
    GradientPairs<kCap, kBias>(p);
  } else {
    GradientRows<kCap, kBias>(p);
  }
}

// body(Flag<softcap>{}, Flag<bias>{}): loops without them stay as they are.
template <bool kFlag>
struct Flag {
  static constexpr bool value = kFlag;
};
template <typename Body>
SNUG_INLINE void ByScore(bool cap, bool bias, const Body& body) {
  if (cap && bias) return body(Flag<true>{}, Flag<true>{});
  if (cap) return body(Flag<true>{}, Flag<false>{});
  if (bias) return body(Flag<false>{}, Flag<true>{});
  body(Flag<false>{}, Flag<false>{});
}

void KeepRow(const KeepTile& p, int64_t row, int32_t threshold) {
  constexpr int64_t kColumns = 4 * kLanes;
  const int64_t end = p.column + p.columns;
  for (int64_t column = p.column; column < end;) {
    const int64_t group = column / kColumns;
    const int64_t number = p.first_group + row * p.row_groups + group;
    const Words words = RandomWords(p.site, static_cast<uint64_t>(number * kLanes));
    const int64_t last = (group + 1) * kColumns < end ? (group + 1) * kColumns : end;
    for (; column < last; column += kLanes) {
      const I32x16 keep = ~Dropped(words.word[column % kColumns / kLanes], threshold);
      ToMemory(p.keep + row * p.stride + column - p.column, keep);
    }
  }
}

template <typename T>
void RowDotsTyped(const RowDots& p) {
  for (int64_t row = 0; row < p.rows; ++row) {
    const T* a = RowOf<T>(p.a, row, p.a_stride);
    const T* b = RowOf<T>(p.b, row, p.b_stride);
    p.delta[row] = static_cast<float>(Sum(p.width, [&](int64_t c, auto part) SNUG_LAMBDA {
      return Load(a + c, part) * Load(b + c, part);
    }));
  }
}

}  // namespace

void SoftmaxTileRows(const SoftmaxTile& p) {
  ByScore(p.rule.softcap > 0.0f, p.bias != nullptr, [&](auto cap, auto bias) {
    for (int64_t row = 0; row < p.rows; ++row)
      SoftmaxRow<decltype(cap)::value, decltype(bias)::value>(p, row);
  });
}

void KeepTileRows(const KeepTile& p) {
  for (int64_t row = 0; row < p.rows; ++row) KeepRow(p, row, ThresholdOf(p.rate));
}

void GradientTileRows(const GradientTile& p) {
  ByScore(p.rule.softcap > 0.0f, p.bias != nullptr, [&](auto cap, auto bias) {
    GradientTyped<decltype(cap)::value, decltype(bias)::value>(p);
  });
}

void RowDotsRows(const RowDots& p) {
  ByType(p.dtype, [&](auto t) { RowDotsTyped<decltype(t)>(p); });
}

}  // namespace snug::kernels::SNUG_ISA
