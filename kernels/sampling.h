// Column-row sampling: a weight gradient dW = sum_t g_t (x) h_t over T rows, estimated without bias
// from k of them. The rows that weigh most are always taken (the certain set C), the rest is
// sampled in proportion to scores (Liu et al. 2023, eqs. 5 and 6, theorem 2).
//
//   s_t = norms[t] * surrogate[t], or norms[t] where all these products are 0 (nothing is known
//         yet); 0 for padding; else at least floor * mean(s)
//   C   = the largest c* scores, c* = argmin_c (1 - P_c) / (k - c), P_c the share of the c largest:
//         the rows above the fixed point tau = S_R / (k - |C|), S_R = sum of the scores not in C
//   dW ~= sum_(t in C) g_t (x) h_t + sum over the k - |C| sampled rows of (tau / s_t) g_t (x) h_t
//
// Scores become integers of 31 bits, relative to the largest; what follows is integer arithmetic,
// so that the CPU and CUDA select the same rows with the same weights, and exactly k of them.
#ifndef KERNELS_SAMPLING_H_
#define KERNELS_SAMPLING_H_

#include <cstdint>

#include "kernels/philox.h"
#include "kernels/types.h"

namespace snug::kernels {

inline constexpr int64_t kMaxSampledRows = int64_t{1} << 30;
inline constexpr int64_t kMinSampleBudget = 10;

enum class SamplingKind : uint8_t {
  kSystematic,     // Threshold PPS: distinct rows, in sequence order, at equal steps of the sum of
                   // scores from one random start (Madow 1949).
  kWinnerTakeAll,  // The paper's: independent draws with replacement.
};

// Rows to keep of T: floor(share * T), at least kMinSampleBudget, at most T.
inline constexpr int64_t SampleBudget(int64_t T, double share) {
  const int64_t k = static_cast<int64_t>(share * static_cast<double>(T));
  const int64_t least = k < kMinSampleBudget ? kMinSampleBudget : k;
  return least < T ? least : T;
}

// Bytes of workspace, aligned to 8 bytes. Contents: none needed, none left.
inline constexpr int64_t SampleRowsWorkspace(int64_t T, SamplingKind kind) {
  return T * (kind == SamplingKind::kWinnerTakeAll ? 12 : 4);
}

// norms -> index, weights. Systematic: index rises. Winner takes all: C, rising, then the draws in
// their order. k == T: every row in order, weight 1, nothing random. Where fewer than k rows have a
// score, they are all in C; slots that are left over repeat the last index (0 if there is none)
// with weight 0. A score that is not finite counts as the largest there is, so that its row is kept
// and shows. The draw is the site's alone (blocks 0 to k/2 + 1). On CUDA one block does it
// all, in some 10 passes over T scores; nothing is sent to the host.
struct SampleRowsParams {
  const float* norms = nullptr;      // (T), >= 0: of the linear's input
  const float* surrogate = nullptr;  // (T), >= 0: what is known of the gradient's norms, or null
  const uint8_t* mask = nullptr;     // (T) 0: padding, never selected (unless k == T); null: none
  int32_t* index = nullptr;          // (k)
  float* weights = nullptr;          // (k)
  int64_t* certain = nullptr;        // (1) |C|, or null
  int64_t T = 0;                     // <= kMaxSampledRows
  int64_t k = 0;                     // In [1, T] (0 if T is).
  SamplingKind kind = SamplingKind::kSystematic;
  float floor = 0.01f;  // In [0, 1). 0 loses rows whose surrogate is 0 and gradient is not: biased.
  RandomSite site;
  void* workspace = nullptr;  // SampleRowsWorkspace(T, kind) bytes; not needed if k == T
};
Error SampleRows(const SampleRowsParams& p, Stream stream);

// y[i] = weights[i] * x[index[i]], rounded once; with weight 1 a copy, with weight 0 zeros,
// whatever x holds there. On CUDA indices are not checked. Traffic: 2*k*C elements.
struct GatherScaledRowsParams {
  const void* x = nullptr;         // (x_rows, C), dtype
  const int32_t* index = nullptr;  // (N), in [0, x_rows)
  const float* weights = nullptr;  // (N)
  void* y = nullptr;               // (N, C), dtype
  int64_t N = 0, C = 0, x_rows = 0;
  int64_t x_stride = 0, y_stride = 0;
  DType dtype = DType::kF32;
};
Error GatherScaledRows(const GatherScaledRowsParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_SAMPLING_H_
