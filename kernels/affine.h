// The second step of a norm (normalize.h): from xhat to z. Stored is xhat alone, so that z, where a
// following linear needs it, is computed again from it.
//
//   z[i,c] = xhat[i,c] * (offset + gamma[c]) + beta[c]
//
// In bf16 this rounds as transformers' LlamaRMSNorm does: xhat was rounded to bf16, then z is.
#ifndef KERNELS_AFFINE_H_
#define KERNELS_AFFINE_H_

#include <cstdint>

#include "kernels/column_sums.h"
#include "kernels/types.h"

namespace snug::kernels {

// `z` may be `xhat`. Traffic: 2*N*C elements.
struct AffineForwardParams {
  const void* xhat = nullptr;   // (N, C), dtype
  const void* gamma = nullptr;  // (C), gamma_dtype
  void* z = nullptr;            // (N, C), dtype
  int64_t N = 0, C = 0;
  int64_t xhat_stride = 0, z_stride = 0;
  DType dtype = DType::kF32;
  DType gamma_dtype = DType::kF32;
  float offset = 0.0f;
  const void* beta = nullptr;  // (C), gamma_dtype, or null: none
};
Error AffineForward(const AffineForwardParams& p, Stream stream);

// dxhat = dz * (offset + gamma) and, each unless its pointer is null, dgamma (+)= sum_i dz * xhat
// and dbeta (+)= sum_i dz. `dxhat` may be `dz`. A column of them is summed over rows in blocks of
// 32 in fp32, the blocks in fp64 (on CUDA in parts, kernels/column_sums.h), so dividing rows among
// calls changes its last bits. Traffic: 3*N*C elements (2 without dgamma) + 4*C bytes a sum.
struct AffineBackwardParams {
  const void* dz = nullptr;     // (N, C), dtype
  const void* gamma = nullptr;  // (C), gamma_dtype; needed for dxhat
  const void* xhat = nullptr;   // (N, C), dtype; needed for dgamma
  void* dxhat = nullptr;        // (N, C), dtype, or null
  float* dgamma = nullptr;      // (C), fp32, or null
  int64_t N = 0, C = 0;
  int64_t dz_stride = 0, xhat_stride = 0, dxhat_stride = 0;
  DType dtype = DType::kF32;
  DType gamma_dtype = DType::kF32;
  float offset = 0.0f;
  bool accumulate = false;    // Into the sums. Without it and with N == 0, they become 0.
  void* workspace = nullptr;  // On CUDA: ColumnSumsWorkspace(N, C) bytes for each sum asked for
  float* dbeta = nullptr;     // (C), fp32, or null
  // (N), fp32, or null. Not null: xhat holds the input of an RMS norm, and x * r stands for it.
  const float* r = nullptr;
};
Error AffineBackward(const AffineBackwardParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_AFFINE_H_
