// Softmax cross-entropy over a chunk of rows of logits, loss and gradient in one call: the head
// works chunk by chunk, so that the logits of all rows never exist at once.
//
//   lse[i] = log sum_v exp(x[i,v])
//   loss[i] = weight[i] * (lse[i] - x[i,label])
//   dlogits[i,v] = scale * weight[i] * (softmax(x[i])[v] - [v == label])
//
// With label smoothing s (Szegedy et al. 2016, sec. 7) the label's share of 1 is 1 - s, and s / V
// is each class's: x[i,label] becomes (1 - s) x[i,label] + s mean_v x[i,v], and [v == label] its
// slope. With z-loss (Chowdhery et al. 2022, sec. 5) a * lse[i]^2 is added, softmax gets the factor
// 1 + 2 a lse[i].
// With a softcap (Gemma 2) x is softcap * tanh(logits / softcap), and dlogits has its slope as a
// factor.
// A row may have two labels a and b (mixup, Zhang et al. 2018): x[i,label] becomes
// share[i] x[i,a] + (1 - share[i]) x[i,b], and [v == label] its slope, before any smoothing.
#ifndef KERNELS_CROSS_ENTROPY_H_
#define KERNELS_CROSS_ENTROPY_H_

#include <cstdint>

#include "kernels/types.h"

namespace snug::kernels {

// If any logit of a row is NaN or infinite, its loss and its gradient are NaN, whatever its weight.
// A row of weight 0 may have a negative label (its loss and gradient are 0); every other label is
// in [0, V). The sum of exponentials is fp32 over 4,096 columns, fp64 beyond. `scale` (1 / trained
// tokens of the step) multiplies the gradient alone, so that losses of rows add up in fp64 before
// they are divided. The entropy, log S - sum_v e_v (x_v - max) / S with S = sum_v e_v, comes out of
// the pass that adds up S; it is a figure to look at: its sum is fp32 throughout. Traffic: 4*N*V
// elements (2 without dlogits), of which all but the first read and the last write come from the
// cache when a row fits it; on CUDA 2*N*V (1) and what registers do not hold of a row once more.
inline constexpr int64_t kNoIgnoredLabel = INT64_MIN;

struct CrossEntropyParams {
  const void* logits = nullptr;  // (N, V), dtype
  void* dlogits = nullptr;       // (N, V), dtype; may be `logits`; null: no gradient
  const void* labels = nullptr;  // (N), label_type
  // (N), label_type: b; negative, or the row's first one again: it has one label. Null: all have
  // one.
  const void* second_labels = nullptr;
  const float* shares = nullptr;   // (N), in [0, 1]: the first label's; beside second_labels
  const float* weights = nullptr;  // (N); null: all 1
  double* row_loss = nullptr;      // (N)
  double* loss_sum = nullptr;      // += the rows' losses in their order; null: not wanted
  double* row_entropy = nullptr;   // (N) of softmax(x[i]), nats; null: not wanted
  int32_t* row_correct = nullptr;  // (N) 1: no logit is above the first label's; or null
  int64_t N = 0, V = 0;
  int64_t logits_stride = 0, dlogits_stride = 0;
  DType dtype = DType::kF32;
  IndexType label_type = IndexType::kI32;
  float scale = 1.0f;
  float softcap = 0.0f;          // >= 0; 0: none.
  float label_smoothing = 0.0f;  // In [0, 1).
  float z_loss = 0.0f;           // Finite, >= 0.
  int64_t ignore_label = kNoIgnoredLabel;
};
Error CrossEntropy(const CrossEntropyParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_CROSS_ENTROPY_H_
