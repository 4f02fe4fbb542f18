// The squared L2 norm over many tensors, for clipping and as the check that gradients are finite.
//
//   sum_squares = sum_t sum_i x_t[i]^2
#ifndef KERNELS_GRAD_NORM_H_
#define KERNELS_GRAD_NORM_H_

#include <cstdint>

#include "kernels/types.h"

namespace snug::kernels {

struct NormTensor {
  const void* x = nullptr;  // (n), dtype
  int64_t n = 0;
  DType dtype = DType::kF32;
};

// Squares and sums are fp64, in which no fp32 square overflows: the result is finite if and only if
// every element is. Traffic: one read.
struct SumSquaresParams {
  const NormTensor* tensors = nullptr;
  int64_t count = 0;              // Of tensors.
  double* sum_squares = nullptr;  // (1), written
};
Error SumSquares(const SumSquaresParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_GRAD_NORM_H_
