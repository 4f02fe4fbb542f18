// The squared L2 norm over many tensors, as the check that gradients are finite and for clipping.
//
//   sum_squares = sum_t sum_i x_t[i]^2
#ifndef KERNELS_GRAD_NORM_H_
#define KERNELS_GRAD_NORM_H_

#include <cmath>
#include <cstdint>

#include "kernels/types.h"

namespace snug::kernels {

struct NormTensor {
  const void* x = nullptr;  // (n), dtype
  int64_t n = 0;
  DType dtype = DType::kF32;
};

// Blocks that sum side by side on CUDA, and the bytes of workspace in which their sums wait to be
// added, for any tensors. Contents: none needed, none left.
inline constexpr int64_t kSumSquaresParts = 1024;
inline constexpr int64_t SumSquaresWorkspace() {
  return kSumSquaresParts * static_cast<int64_t>(sizeof(double));
}

// Squares and sums are fp64, in which no fp32 square overflows: the result is finite if and only if
// every element is. Traffic: one read. The list itself is the host's on CUDA, too.
struct SumSquaresParams {
  const NormTensor* tensors = nullptr;
  int64_t count = 0;              // Of tensors.
  double* sum_squares = nullptr;  // (1), written
  void* workspace = nullptr;      // On CUDA: SumSquaresWorkspace() bytes, aligned to 8
};
Error SumSquares(const SumSquaresParams& p, Stream stream);

// factor = min(1, max_norm / (sqrt(sum_squares) + 1e-6)), as torch.nn.utils.clip_grad_norm_ does;
// NaN stays NaN. For AdamWParams::grad_factor, so that no host waits for a norm.
struct ClipFactorParams {
  const double* sum_squares = nullptr;  // (1)
  double max_norm = 0.0;                // > 0
  float* factor = nullptr;              // (1), written
};
Error ClipFactor(const ClipFactorParams& p, Stream stream);

// What ClipFactor computes.
SNUG_HOST_DEVICE inline float ClipFactorOf(double sum_squares, double max_norm) {
  const double factor = max_norm / (sqrt(sum_squares) + 1e-6);
  return factor >= 1.0 ? 1.0f : static_cast<float>(factor);
}

}  // namespace snug::kernels

#endif  // KERNELS_GRAD_NORM_H_
