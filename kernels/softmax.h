// Softmax of attention scores with a mask, for attention that ATen has no fused path for: a
// relative bias (Raffel et al. 2020, sec. 2.1), capped scores (Gemma 2), probabilities kept as
// codes of 8 bits (Pan et al. 2022, "Mesa"). Backward needs the output alone.
//
//   s[i,c] = cap(scale * x[i,c]) + bias[i % (heads * queries), c]      cap(v) = softcap tanh(v /
//   softcap) p[i,c] = exp(s[i,c]) / sum over visible c of exp(s[i,c]), 0 where c is not visible
//   dx[i,c] = scale * cap'(scale * x[i,c]) * p[i,c] * (dp[i,c] - sum_c p[i,c] dp[i,c])
//
// Rows are (batch, head, query): row i is query i % queries of batch i / (heads * queries). Without
// cap and scale dx is the gradient of the bias too, up to the sum over batches (kernels/bias.h).
#ifndef KERNELS_SOFTMAX_H_
#define KERNELS_SOFTMAX_H_

#include <cstdint>

#include "kernels/types.h"

namespace snug::kernels {

// What the queries see: column c is visible to query q unless keys[batch][c] is 0; with `causal`,
// c <= first_key + q; with a window, c > first_key + q - window. A row that sees nothing, or
// nothing above -3e38, has probabilities of 0.
struct ScoreMask {
  const uint8_t* keys = nullptr;  // (N / (heads * queries), C); null: all visible
  int64_t keys_stride = 0;
  int64_t heads = 1, queries = 1;  // heads * queries divides N.
  int64_t first_key = 0;           // The column that query 0 stands at: C - queries, mostly.
  int64_t window = 0;              // > 0: with causal alone; 0: none.
  bool causal = false;
};

// x -> p. `p` may be `x`. Traffic: 2*N*C elements, and the bias once per batch.
struct SoftmaxForwardParams {
  const void* x = nullptr;     // (N, C), dtype
  const void* bias = nullptr;  // (heads * queries, C), bias_dtype, or null
  void* p = nullptr;           // (N, C), dtype
  int64_t N = 0, C = 0;
  int64_t x_stride = 0, bias_stride = 0, p_stride = 0;
  DType dtype = DType::kF32, bias_dtype = DType::kF32;
  float scale = 1.0f;    // Finite.
  float softcap = 0.0f;  // >= 0; 0: none.
  ScoreMask mask;
};
Error SoftmaxForward(const SoftmaxForwardParams& p, Stream stream);

// p, dp -> dx, `p` being what forward wrote, or its codes: p = minimum[g] + step[g] * code, for row
// i of group g = i / rows_per_group % groups. (A head: rows_per_group = queries, groups = heads.)
// Where a column is not visible p is 0, whatever its code says, and dp is not read. `dx` may be
// `dp`. Traffic: 3*N*C elements (p as codes: 1 byte each; one more with a softcap).
struct SoftmaxBackwardParams {
  const void* p = nullptr;         // (N, C), dtype; null: codes
  const uint8_t* codes = nullptr;  // (N, C)
  const float* step = nullptr;     // (groups); with codes
  const float* minimum = nullptr;  // (groups); with codes
  const void* dp = nullptr;        // (N, C), dtype
  const void* x = nullptr;         // (N, C), dtype: what forward read; with a softcap alone
  void* dx = nullptr;              // (N, C), dtype
  int64_t N = 0, C = 0;
  int64_t p_stride = 0, codes_stride = 0, dp_stride = 0, x_stride = 0, dx_stride = 0;
  int64_t groups = 1, rows_per_group = 1;
  DType dtype = DType::kF32;
  float scale = 1.0f;
  float softcap = 0.0f;
  ScoreMask mask;
};
Error SoftmaxBackward(const SoftmaxBackwardParams& p, Stream stream);

namespace softmax {

// Columns [begin, end) of a row, of which a mask of keys may hide some.
struct Span {
  int64_t begin, end;
};
SNUG_HOST_DEVICE inline Span SpanOf(const ScoreMask& mask, int64_t row, int64_t C) {
  if (!mask.causal) return {0, C};
  const int64_t last = mask.first_key + row % mask.queries;
  const int64_t end = last + 1 < 0 ? 0 : last + 1 < C ? last + 1 : C;
  const int64_t first = mask.window > 0 ? last - mask.window + 1 : 0;
  const int64_t begin = first < 0 ? 0 : first < end ? first : end;
  return {begin, end};
}
SNUG_HOST_DEVICE inline const uint8_t* KeysOf(const ScoreMask& mask, int64_t row) {
  return mask.keys == nullptr ? nullptr
                              : mask.keys + row / (mask.heads * mask.queries) * mask.keys_stride;
}

}  // namespace softmax
}  // namespace snug::kernels

#endif  // KERNELS_SOFTMAX_H_
