// AdamW (Loshchilov & Hutter 2019, algorithm 2) over many tensors at once, all fp32; a tensor that
// is computed with in bf16 has its copy rounded from the new fp32 value in the same pass. The order
// of operations is that of torch.optim.AdamW (one tensor at a time, no amsgrad):
//
//   g' = g * grad_scale                   p -= p * lr * weight_decay, as p *= 1 - lr * weight_decay
//   m += (1 - beta1) * (g' - m)           v = v * beta2 + (1 - beta2) * g' * g'
//   p -= (lr / (1 - beta1^step)) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
//
// Scalars are computed in fp64 and rounded to fp32 once.
#ifndef KERNELS_ADAMW_H_
#define KERNELS_ADAMW_H_

#include <cstdint>

#include "kernels/types.h"

namespace snug::kernels {

struct AdamWTensor {
  float* p = nullptr;        // (n) parameter: of a bf16 copy, its master
  const float* g = nullptr;  // (n) gradient
  float* m = nullptr;        // (n) first moment
  float* v = nullptr;        // (n) second moment
  bf16* copy = nullptr;      // (n) p rounded to nearest even; null: none wanted
  int64_t n = 0;
  bool decay = true;  // Whether weight decay applies (not to norms).
};

// Traffic: 7 * 4 bytes an element, 2 more with a copy.
struct AdamWParams {
  const AdamWTensor* tensors = nullptr;
  int64_t count = 0;          // Of tensors.
  int64_t step = 0;           // >= 1: this update included.
  double lr = 0.0;            // >= 0
  double beta1 = 0.9;         // [0, 1)
  double beta2 = 0.999;       // [0, 1)
  double eps = 1e-8;          // >= 0
  double weight_decay = 0.0;  // >= 0
  float grad_scale = 1.0f;    // The clipping coefficient; NaN spreads to all parameters.
};
Error AdamW(const AdamWParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_ADAMW_H_
