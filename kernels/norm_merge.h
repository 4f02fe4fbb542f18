// A norm's affine step and the linear that follows it, y = z W^T + b with z = xhat diag(gamma) +
// beta, taken together (LowMemoryBP, arXiv 2406.16282, section 4).
//
// Fold: nothing is merged. From what is stored, xhat, comes g = dy^T xhat, and of it, on small
// matrices, the gradients of W, gamma and beta as they were:
//   dW = dy^T z = g diag(gamma) + s beta^T     s[n] = sum_i dy[i,n], the gradient of b
//   dgamma[c] = sum_n W[n,c] g[n,c]            dbeta[c] = sum_n W[n,c] s[n]
// g and s are also the gradients of a merged weight and its bias. For an adapter dA follows in the
// same way, from dy B in the place of dy.
//
// Merge: the paper's way, W' = W diag(gamma), b' = b + W beta, and back. It changes weights, so it
// is kept for parity alone. gamma stands for offset + gamma here.
#ifndef KERNELS_NORM_MERGE_H_
#define KERNELS_NORM_MERGE_H_

#include <cstdint>

#include "kernels/column_sums.h"
#include "kernels/types.h"

namespace snug::kernels {

// `dw` may be `g` (not with accumulate). Columns of dgamma and dbeta are summed as in affine.h.
// Traffic: 2*N*C fp32 (3 with accumulate), N*C elements of W for dgamma and dbeta.
struct FoldNormParams {
  const float* g = nullptr;     // (N, C), fp32: dy^T xhat
  const float* s = nullptr;     // (N), fp32; needed with beta and for dbeta
  const void* gamma = nullptr;  // (C), gamma_dtype; needed for dw
  const void* beta = nullptr;   // (C), gamma_dtype, or null: none
  const void* w = nullptr;      // (N, C), w_dtype; needed for dgamma and dbeta
  float* dw = nullptr;          // (N, C), fp32, or null
  float* dgamma = nullptr;      // (C), fp32, or null
  float* dbeta = nullptr;       // (C), fp32, or null
  int64_t N = 0, C = 0;
  int64_t g_stride = 0, w_stride = 0, dw_stride = 0;
  DType w_dtype = DType::kF32;
  DType gamma_dtype = DType::kF32;
  float offset = 0.0f;
  bool accumulate = false;    // Into dw, dgamma and dbeta.
  void* workspace = nullptr;  // On CUDA: ColumnSumsWorkspace(N, C) bytes for each of the two asked
};
Error FoldNorm(const FoldNormParams& p, Stream stream);

// merged_w = w diag(offset + gamma), merged_b = b + w beta; computed in fp64, rounded once. The
// outputs may be the inputs. Traffic: 2*N*C elements.
struct MergeNormParams {
  const void* w = nullptr;      // (N, C), dtype
  const void* b = nullptr;      // (N), dtype, or null: 0
  const void* gamma = nullptr;  // (C), gamma_dtype
  const void* beta = nullptr;   // (C), gamma_dtype, or null: 0
  void* merged_w = nullptr;     // (N, C), dtype
  void* merged_b = nullptr;     // (N), dtype; may be null where b and beta are
  int64_t N = 0, C = 0;
  int64_t w_stride = 0, merged_w_stride = 0;
  DType dtype = DType::kF32;
  DType gamma_dtype = DType::kF32;
  float offset = 0.0f;
};
Error MergeNorm(const MergeNormParams& p, Stream stream);

// From a merged w and b to what they were: merged_w = w / (offset + gamma), merged_b = b - merged_w
// beta. Where gamma is 0 nothing can be had back: that column becomes infinite or NaN.
Error UnmergeNorm(const MergeNormParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_NORM_MERGE_H_
