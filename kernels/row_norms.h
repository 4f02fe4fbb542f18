// Euclidean norms of rows: the scores of column-row sampling (Liu et al. 2023, "Winner-take-all
// column row sampling for memory efficient adaptation of language model", sec. 3.2), of a linear's
// input in forward, of its gradient in backward.
//
//   norms[i] = scale * sqrt(sum_c x[i,c]^2)
//
// The same bits on the CPU and on CUDA, so that the same rows are sampled: squares are added in
// kNormChains chains, column c to chain c % kNormChains, and chains in a tree, all in fp32.
#ifndef KERNELS_ROW_NORMS_H_
#define KERNELS_ROW_NORMS_H_

#include <cstdint>

#include "kernels/types.h"

namespace snug::kernels {

inline constexpr int kNormChains = 256;  // Eight elements of each thread of a warp.

// Elements beyond 1.8e19 overflow: their norm is infinite. Traffic: N*C elements + 4*N bytes.
struct RowNormsParams {
  const void* x = nullptr;  // (N, C), dtype
  float* norms = nullptr;   // (N), fp32
  int64_t N = 0, C = 0;
  int64_t x_stride = 0;
  DType dtype = DType::kF32;
  float scale = 1.0f;  // 1 / the factor that a scaled loss has put into gradients; finite, > 0.
};
Error RowNorms(const RowNormsParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_ROW_NORMS_H_
