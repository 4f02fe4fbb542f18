// RMS norm (Zhang & Sennrich 2019, eq. 4) as two ops, so that xhat is stored once for all that need
// it: normalise, whose backward needs its output alone, and affine, one multiplication away from
// it. And as one, for models that round but once.
//
//   r[i] = 1 / sqrt(mean_c x[i,c]^2 + eps)
//   xhat[i,c] = x[i,c] * r[i]    z[i,c] = xhat[i,c] * (offset + gamma[c])
//
// Rounding in bf16 is that of transformers' LlamaRMSNorm: xhat is rounded to bf16, then z is. Its
// Gemma norms round z alone: that is the third op, rms_norm, which has no xhat and whose backward
// needs its input. (A z made of a rounded xhat has twice the variance of error; gradients of
// Gemma's head norms were 2.1 times as far from float64 as transformers'.)
#ifndef KERNELS_RMS_NORM_H_
#define KERNELS_RMS_NORM_H_

#include <cstdint>

#include "kernels/column_sums.h"
#include "kernels/types.h"

namespace snug::kernels {

// x -> xhat, r. `xhat` may be `x`. Traffic: 2*N*C elements + 4*N bytes.
struct NormalizeForwardParams {
  const void* x = nullptr;  // (N, C), dtype
  void* xhat = nullptr;     // (N, C), dtype
  float* r = nullptr;       // (N), fp32
  int64_t N = 0, C = 0;
  int64_t x_stride = 0, xhat_stride = 0;
  DType dtype = DType::kF32;
  float eps = 0.0f;  // >= 0
};
Error NormalizeForward(const NormalizeForwardParams& p, Stream stream);

// dx = r * (dxhat - xhat * mean_c(dxhat * xhat)), or dx += that with `accumulate`. `dx` may be
// `dxhat` (not with accumulate). Traffic: 3*N*C elements (4 with accumulate) + 4*N bytes.
struct NormalizeBackwardParams {
  const void* dxhat = nullptr;  // (N, C), dtype
  const void* xhat = nullptr;   // (N, C), dtype: what forward wrote
  const float* r = nullptr;     // (N), fp32: what forward wrote
  void* dx = nullptr;           // (N, C), dtype
  int64_t N = 0, C = 0;
  int64_t dxhat_stride = 0, xhat_stride = 0, dx_stride = 0;
  DType dtype = DType::kF32;
  bool accumulate = false;
};
Error NormalizeBackward(const NormalizeBackwardParams& p, Stream stream);

// z = xhat * (offset + gamma). `z` may be `xhat`. Traffic: 2*N*C elements.
struct AffineForwardParams {
  const void* xhat = nullptr;   // (N, C), dtype
  const void* gamma = nullptr;  // (C), gamma_dtype
  void* z = nullptr;            // (N, C), dtype
  int64_t N = 0, C = 0;
  int64_t xhat_stride = 0, z_stride = 0;
  DType dtype = DType::kF32;
  DType gamma_dtype = DType::kF32;
  float offset = 0.0f;
};
Error AffineForward(const AffineForwardParams& p, Stream stream);

// dxhat = dz * (offset + gamma) and, each unless its pointer is null, dgamma (+)= sum_i dz * xhat.
// `dxhat` may be `dz`. A column of dgamma is summed over rows in blocks of 32 in fp32, the blocks
// in fp64 (on CUDA in parts, kernels/column_sums.h), so dividing rows among calls changes its last
// bits. Traffic: 3*N*C elements (2 without dgamma) + 4*C bytes.
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
  bool accumulate = false;    // Into dgamma. Without it and with N == 0, dgamma becomes 0.
  void* workspace = nullptr;  // On CUDA, with dgamma: ColumnSumsWorkspace(N, C) bytes
};
Error AffineBackward(const AffineBackwardParams& p, Stream stream);

// x -> z, r with z rounded once. `z` may be `x`. Traffic: 2*N*C elements + 4*N bytes.
struct RmsNormForwardParams {
  const void* x = nullptr;      // (N, C), dtype
  const void* gamma = nullptr;  // (C), gamma_dtype
  void* z = nullptr;            // (N, C), dtype
  float* r = nullptr;           // (N), fp32
  int64_t N = 0, C = 0;
  int64_t x_stride = 0, z_stride = 0;
  DType dtype = DType::kF32;
  DType gamma_dtype = DType::kF32;
  float eps = 0.0f;  // >= 0
  float offset = 0.0f;
};
Error RmsNormForward(const RmsNormForwardParams& p, Stream stream);

// With xhat = x * r and dxhat = dz * (offset + gamma), neither of them rounded: dx (+)= r * (dxhat
// - xhat * mean_c(dxhat * xhat)) and dgamma (+)= sum_i dz * xhat, each unless its pointer is null;
// dgamma is summed as in AffineBackward. `dx` may be `dz` (not with accumulate_dx). Traffic:
// 5*N*C elements (1 more with accumulate_dx, 3 without dgamma, 2 without dx) + 4*(N + C) bytes.
struct RmsNormBackwardParams {
  const void* dz = nullptr;     // (N, C), dtype
  const void* x = nullptr;      // (N, C), dtype
  const float* r = nullptr;     // (N), fp32: what forward wrote
  const void* gamma = nullptr;  // (C), gamma_dtype; needed for dx
  void* dx = nullptr;           // (N, C), dtype, or null
  float* dgamma = nullptr;      // (C), fp32, or null
  int64_t N = 0, C = 0;
  int64_t dz_stride = 0, x_stride = 0, dx_stride = 0;
  DType dtype = DType::kF32;
  DType gamma_dtype = DType::kF32;
  float offset = 0.0f;
  bool accumulate_dx = false;
  bool accumulate_dgamma = false;  // Without it and with N == 0, dgamma becomes 0.
};
Error RmsNormBackward(const RmsNormBackwardParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_RMS_NORM_H_
