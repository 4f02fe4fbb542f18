// Softmax of attention scores on CUDA: a warp or a block a row, whose scores stay in registers
// between the maximum, the sum and the probabilities.
#include "kernels/softmax.h"

#include "kernels/cuda/entries.h"
#include "kernels/cuda/maximum.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/team.cuh"

namespace snug::kernels::cuda {
namespace {

using softmax::Span;

constexpr float kHidden = -3.2e38f;  // Finite, so that differences of two are no NaN.
constexpr float kNothing = -3.0e38f;

// Which of the V columns from c on are visible, as bits.
template <int V>
__device__ inline unsigned VisibleOf(const Span& span, const uint8_t* keys, int64_t c) {
  const auto within = [&](int64_t column) {
    return static_cast<int>(min(max(column - c, int64_t{0}), int64_t{V}));
  };
  const int first = within(span.begin), end = within(span.end);
  unsigned visible = (1u << end) - (1u << first);
  if (keys == nullptr || visible == 0) return visible;
  const Pack<uint8_t, V> seen = LoadPack<V>(keys + c);
#pragma unroll
  for (int i = 0; i < V; ++i) visible &= seen.at[i] != 0 ? ~0u : ~(1u << i);
  return visible;
}

template <typename T, int V>
__device__ inline Floats<V> ScoresOf(const SoftmaxForwardParams& p, int64_t row, int64_t c,
                                     unsigned visible) {
  const T* x = static_cast<const T*>(p.x) + row * p.x_stride;
  Floats<V> s = Load<V>(x + c), bias = {};
  if (p.bias != nullptr) {
    const int64_t bias_row = row % (p.mask.heads * p.mask.queries);
    bias = LoadAny<V>(p.bias, p.bias_dtype, bias_row * p.bias_stride + c);
  }
#pragma unroll
  for (int i = 0; i < V; ++i) {
    float score = s.at[i] * p.scale;
    if (p.softcap > 0.0f) score = p.softcap * tanhf(score / p.softcap);
    s.at[i] = (visible >> i & 1) != 0 ? score + bias.at[i] : kHidden;
  }
  return s;
}

// The packs that no column of the row is visible in are not read.
template <typename T, int V, bool kBlock>
__global__ void __launch_bounds__(kMaxBlock, kFewBlocks)
    SoftmaxForwardKernel(SoftmaxForwardParams p) {
  const Team<kBlock> team;
  const int64_t packs = p.C / V;
  for (int64_t row = team.row; row < p.N; row += team.rows_apart) {
    const Span span = softmax::SpanOf(p.mask, row, p.C);
    const uint8_t* keys = softmax::KeysOf(p.mask, row);
    T* y = static_cast<T*>(p.p) + row * p.p_stride;
    Floats<V> held[kHeld];
    const auto scores = [&](int64_t pack) {
      const unsigned visible = VisibleOf<V>(span, keys, pack * V);
      if (visible != 0) return ScoresOf<T, V>(p, row, pack * V, visible);
      return Each([](float) { return kHidden; }, Floats<V>{});
    };
    float max = kHidden;
    ForPacks(team, packs, [&](int k, int64_t pack) {
      const Floats<V> s = scores(pack);
      if (k < kHeld) held[k] = s;
#pragma unroll
      for (int i = 0; i < V; ++i) max = fmaxf(max, s.at[i]);
    });
    max = kBlock ? BlockMax(max) : WarpMax(max);
    const auto exponential = [&](float s) { return expf(s - max); };
    float sum = 0.0f;
    ForPacks(team, packs, [&](int k, int64_t pack) {
      const Floats<V> e = Each(exponential, k < kHeld ? held[k] : scores(pack));
      if (k < kHeld) held[k] = e;
#pragma unroll
      for (int i = 0; i < V; ++i) sum += e.at[i];
    });
    sum = team.Sum(sum);
    const bool nothing = max < kNothing && sum == sum;  // A NaN shows.
    const float inverse = nothing ? 0.0f : __fdiv_rn(1.0f, sum);
    ForPacks(team, packs, [&](int k, int64_t pack) {
      const Floats<V> e = k < kHeld ? held[k] : Each(exponential, scores(pack));
      Store(y + pack * V, Each([&](float v) { return v * inverse; }, e));
    });
  }
}

// What is the same along a row.
template <typename T>
struct BackwardRow {
  Span span;
  const uint8_t* keys;
  const T* y;  // Null: codes.
  const uint8_t* codes;
  float step, minimum;
  const T* dy;

  __device__ BackwardRow(const SoftmaxBackwardParams& p, int64_t row)
      : span(softmax::SpanOf(p.mask, row, p.C)),
        keys(softmax::KeysOf(p.mask, row)),
        y(nullptr),
        codes(nullptr),
        step(0.0f),
        minimum(0.0f),
        dy(static_cast<const T*>(p.dp) + row * p.dp_stride) {
    if (p.codes == nullptr) {
      y = static_cast<const T*>(p.p) + row * p.p_stride;
    } else {
      const int64_t group = row / p.rows_per_group % p.groups;
      codes = p.codes + row * p.codes_stride;
      step = p.step[group];
      minimum = p.minimum[group];
    }
  }
};

// p and dp, 0 where they are not visible.
template <typename T, int V>
struct Pair {
  Floats<V> y;
  Pack<T, V> dy;

  __device__ static Pair Of(const BackwardRow<T>& row, int64_t c) {
    Pair pair = {};
    const unsigned visible = VisibleOf<V>(row.span, row.keys, c);
    if (visible == 0) return pair;
    pair.dy = LoadPack<V>(row.dy + c);
    if (row.y != nullptr) {
      pair.y = Load<V>(row.y + c);
    } else {
      const Pack<uint8_t, V> codes = LoadPack<V>(row.codes + c);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        pair.y.at[i] = row.minimum + row.step * static_cast<float>(codes.at[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if ((visible >> i & 1) != 0) continue;
      pair.y.at[i] = 0.0f;
      pair.dy.at[i] = T{};
    }
    return pair;
  }
};

__device__ inline float SlopeOfCap(float score, float softcap) {
  const float e = expf(-2.0f * fabsf(score / softcap)), inverse = 1.0f / (1.0f + e);
  return 4.0f * e * inverse * inverse;
}

template <typename T, int V, bool kBlock>
__global__ void __launch_bounds__(kMaxBlock, kFewBlocks)
    SoftmaxBackwardKernel(SoftmaxBackwardParams p) {
  const Team<kBlock> team;
  const int64_t packs = p.C / V;
  for (int64_t row = team.row; row < p.N; row += team.rows_apart) {
    const BackwardRow<T> of_row(p, row);
    T* dx = static_cast<T*>(p.dx) + row * p.dx_stride;
    Pair<T, V> held[kHeld];
    float dot = 0.0f;
    ForPacks(team, packs, [&](int k, int64_t pack) {
      const Pair<T, V> pair = Pair<T, V>::Of(of_row, pack * V);
      if (k < kHeld) held[k] = pair;
#pragma unroll
      for (int i = 0; i < V; ++i) dot += pair.y.at[i] * Widen(pair.dy.at[i]);
    });
    dot = team.Sum(dot);
    ForPacks(team, packs, [&](int k, int64_t pack) {
      const Pair<T, V> pair = k < kHeld ? held[k] : Pair<T, V>::Of(of_row, pack * V);
      Floats<V> result =
          Each([&](float y, float dy) { return y * (dy - dot) * p.scale; }, pair.y, Widen(pair.dy));
      if (p.softcap > 0.0f) {
        const T* x = static_cast<const T*>(p.x) + row * p.x_stride;
        result =
            Each([&](float v,
                     float s) { return v == 0.0f ? 0.0f : v * SlopeOfCap(s * p.scale, p.softcap); },
                 result, Load<V>(x + pack * V));
      }
      Store(dx + pack * V, result);
    });
  }
}

}  // namespace

Error SoftmaxForward(const SoftmaxForwardParams& p, Stream stream) {
  const int64_t bytes = SizeOf(p.dtype);
  return ByPacks(p.dtype, p.C,
                 {{p.x, p.x_stride, bytes},
                  {p.bias, p.bias_stride, SizeOf(p.bias_dtype)},
                  {p.mask.keys, p.mask.keys_stride, 1},
                  {p.p, p.p_stride, bytes}},
                 [&](auto t, auto v) {
                   using T = decltype(t);
                   constexpr int V = decltype(v)::value;
                   return LaunchRows(SoftmaxForwardKernel<T, V, false>,
                                     SoftmaxForwardKernel<T, V, true>, p.C / V, stream, p);
                 });
}

Error SoftmaxBackward(const SoftmaxBackwardParams& p, Stream stream) {
  const int64_t bytes = SizeOf(p.dtype);
  return ByPacks(p.dtype, p.C,
                 {{p.p, p.p_stride, bytes},
                  {p.codes, p.codes_stride, 1},
                  {p.dp, p.dp_stride, bytes},
                  {p.softcap > 0.0f ? p.x : nullptr, p.x_stride, bytes},
                  {p.mask.keys, p.mask.keys_stride, 1},
                  {p.dx, p.dx_stride, bytes}},
                 [&](auto t, auto v) {
                   using T = decltype(t);
                   constexpr int V = decltype(v)::value;
                   return LaunchRows(SoftmaxBackwardKernel<T, V, false>,
                                     SoftmaxBackwardKernel<T, V, true>, p.C / V, stream, p);
                 });
}

}  // namespace snug::kernels::cuda
