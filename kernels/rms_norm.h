// RMS norm as one op, for models that round but once: transformers' Gemma. There is no xhat, and
// backward needs the input. (A z made of a rounded xhat has twice the variance of error; gradients
// of Gemma's head norms were 2.1 times as far from float64 as transformers'.) As two steps, of
// which the first needs its output alone: normalize.h and affine.h.
//
//   r[i] = 1 / sqrt(mean_c x[i,c]^2 + eps)      z[i,c] = x[i,c] * r[i] * (offset + gamma[c])
#ifndef KERNELS_RMS_NORM_H_
#define KERNELS_RMS_NORM_H_

#include <cstdint>

#include "kernels/affine.h"
#include "kernels/normalize.h"
#include "kernels/types.h"

namespace snug::kernels {

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
// 5*N*C elements (1 more with accumulate_dx, 3 without dgamma, 2 without dx) + 4*(N + C) bytes. On
// CUDA both come of one kernel, 3*N*C elements, where N > 1984, rows are aligned to 16 bytes and
// have at most 8,192 elements (fp32: 4,096).
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
  void* workspace = nullptr;       // On CUDA, with dgamma: ColumnSumsWorkspace(N, C) bytes
};
Error RmsNormBackward(const RmsNormBackwardParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_RMS_NORM_H_
