// AdamW (Loshchilov & Hutter 2019, algorithm 2) over many tensors at once, in fp32; a tensor that
// is computed with in 16 bits has its copy rounded from the new fp32 value in the same pass. The
// order of operations is that of torch.optim.AdamW (one tensor at a time, no amsgrad):
//
//   g' = g * grad_scale                   p -= p * lr * weight_decay, as p *= 1 - lr * weight_decay
//   m += (1 - beta1) * (g' - m)           v = v * beta2 + (1 - beta2) * g' * g'
//   p -= (lr / (1 - beta1^step)) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
//
// Scalars are computed in fp64 and rounded to fp32 once. The same bits on CPU and CUDA.
//
// A tensor's moments may lie in 8 bits (Dettmers et al. 2022, arXiv 2110.02861): blocks of 256
// elements, each divided by its largest magnitude and rounded to the nearest of the levels of
// dynamic_map.h, signed for m and unsigned for v. p moves by the new moments before they are
// rounded. Memory of zeros is the state of no moments. A NaN or infinity spreads to its block.
// Where gradients stay below 4e-4 of the largest of their block, v becomes 0 and steps too large:
// the definition's limit.
#ifndef KERNELS_ADAMW_H_
#define KERNELS_ADAMW_H_

#include <cstdint>

#include "kernels/dynamic_map.h"
#include "kernels/types.h"

namespace snug::kernels {

// Moments in 8 bits.
struct MomentCodes {
  uint8_t* m = nullptr;      // (n)
  uint8_t* v = nullptr;      // (n)
  float* m_scale = nullptr;  // (CodeBlocks(n)), fp32
  float* v_scale = nullptr;  // (CodeBlocks(n)), fp32
};
inline constexpr int64_t CodeBlocks(int64_t n) { return (n + kCodeBlock - 1) / kCodeBlock; }

struct AdamWTensor {
  float* p = nullptr;        // (n) parameter: of a copy in 16 bits, its master
  const float* g = nullptr;  // (n) gradient
  float* m = nullptr;        // (n) first moment; null with `codes`
  float* v = nullptr;        // (n) second moment; null with `codes`
  void* copy = nullptr;      // (n), copy_dtype: p rounded to nearest even; null: none wanted
  int64_t n = 0;
  bool decay = true;                // Whether weight decay applies (not to norms).
  DType copy_dtype = DType::kBF16;  // Or kF16.
  MomentCodes codes;                // Of a tensor with its moments in 8 bits.
};

// Traffic: 7 * 4 bytes an element (16 + 16/256 with codes), 2 more with a copy. The list itself is
// the host's on CUDA, too.
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
  // (1), fp32, or null: multiplies grad_scale. On CUDA it is read by the kernel, so that the host
  // need not wait for the norm from which ClipFactor (grad_norm.h) computes it.
  const float* grad_factor = nullptr;
};
Error AdamW(const AdamWParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_ADAMW_H_
