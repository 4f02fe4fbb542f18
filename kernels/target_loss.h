// Losses of a chunk of rows of logits against a number per class, loss and gradient in one call:
// what documents are trained by whose label is no class of its own.
//
//   kSquare:  l(x, t) = (x - t)^2                                   regression
//   kBinary:  l(x, t) = max(x, 0) - x t + log(1 + exp(-|x|))        several labels at once: each
//             is there or not, t is 1 or 0, sigmoid(x) its probability
//   loss[i] = weight[i] * mean_v l(x[i,v], t[i,v])
//   dlogits[i,v] = scale * weight[i] / V * dl/dx
//
// These are torch's MSELoss and BCEWithLogitsLoss, row by row.
#ifndef KERNELS_TARGET_LOSS_H_
#define KERNELS_TARGET_LOSS_H_

#include <cstdint>

#include "kernels/types.h"

namespace snug::kernels {

enum class TargetLossKind : uint8_t { kSquare, kBinary };

// A logit or a target that is not finite gives its row a loss that is none, whatever its weight.
// All is fp64 throughout, as classes are few: a thread of the CPU, or a warp, takes a row. `scale`
// multiplies the gradient alone. Traffic: 2*N*V elements (1 without dlogits) and N*V*4 bytes.
struct TargetLossParams {
  const void* logits = nullptr;    // (N, V), dtype
  void* dlogits = nullptr;         // (N, V), dtype; may be `logits`; null: no gradient
  const float* targets = nullptr;  // (N, V)
  const float* weights = nullptr;  // (N); null: all 1
  double* row_loss = nullptr;      // (N)
  // (N) nats of all V answers together, which are independent; kSquare: 0. Null: not wanted.
  double* row_entropy = nullptr;
  // (N) 1: each x is above 0 where its t is above 1/2, and nowhere else; kSquare: 0. Null: not
  // wanted.
  int32_t* row_correct = nullptr;
  int64_t N = 0, V = 0;
  int64_t logits_stride = 0, dlogits_stride = 0, targets_stride = 0;
  DType dtype = DType::kF32;
  TargetLossKind kind = TargetLossKind::kSquare;
  float scale = 1.0f;
};
Error TargetLoss(const TargetLossParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_TARGET_LOSS_H_
