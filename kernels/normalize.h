// RMS norm (Zhang & Sennrich 2019, eq. 4) and layer norm (Ba et al. 2016, eq. 3) as two steps, so
// that xhat is stored once for all that need it: normalise, whose backward needs its output alone
// (LowMemoryBP, arXiv 2406.16282, section 4), and affine (affine.h), one product away from it.
//
//   m[i] = 0 (kRms), mean_c x[i,c] (kLayer)      r[i] = 1 / sqrt(mean_c (x[i,c] - m[i])^2 + eps)
//   xhat[i,c] = (x[i,c] - m[i]) * r[i]           z[i,c] = xhat[i,c] * (offset + gamma[c]) + beta[c]
//
// Forward does both steps in one pass where z is asked for, and adds a residual first where there
// is one. The mean is taken in two passes over what is held of the row: a mean of 1e4 of rows of
// deviation 1 costs no digits.
#ifndef KERNELS_NORMALIZE_H_
#define KERNELS_NORMALIZE_H_

#include <cstdint>

#include "kernels/types.h"

namespace snug::kernels {

enum class Norm : uint8_t { kRms, kLayer };

// x, or x + residual, -> xhat and r, and z. With a residual: h = x + residual, rounded to h's type,
// is written and is what is normalised. With `wide`, the input (h where there is a residual, else
// x) is fp32 while the rest stays in dtype: an fp32 residual stream of bf16 layers.
//
// `xhat` may be `x` (of one type), `z` too, but not both; `h` may be `residual`. Traffic: N*C
// elements for each of x, residual, h, xhat, z that is there + 4*N bytes.
struct NormalizeForwardParams {
  const void* x = nullptr;  // (N, C), dtype; the input's type where there is no residual
  void* xhat = nullptr;     // (N, C), dtype; null: only z
  float* r = nullptr;       // (N), fp32; may be null where xhat is
  int64_t N = 0, C = 0;
  int64_t x_stride = 0, xhat_stride = 0;
  DType dtype = DType::kF32;
  float eps = 0.0f;  // >= 0
  Norm norm = Norm::kRms;
  bool wide = false;  // The input is fp32.

  const void* residual = nullptr;  // (N, C), the input's type, or null
  void* h = nullptr;               // (N, C), the input's type; with a residual only
  int64_t residual_stride = 0, h_stride = 0;

  void* z = nullptr;            // (N, C), dtype, or null
  const void* gamma = nullptr;  // (C), gamma_dtype; needed for z
  const void* beta = nullptr;   // (C), gamma_dtype, or null
  int64_t z_stride = 0;
  DType gamma_dtype = DType::kF32;
  float offset = 0.0f;
  // z of xhat as rounded to dtype, which a recompute from the stash repeats and transformers' Llama
  // does; else of xhat in fp32, so that z is rounded once (its Gemma, and LibTorch's layer norm).
  bool round_xhat = true;
};
Error NormalizeForward(const NormalizeForwardParams& p, Stream stream);

// dxhat = dz * (offset + gamma), or as given where gamma is null, and
//   dx = r * (dxhat - mean_c(dxhat) [kLayer] - xhat * mean_c(dxhat * xhat)), or dx += that.
// xhat is what forward wrote; where it is null it is computed again from x, the input of forward:
// for comparison, xhat then is not rounded. With `wide`, dx and x are fp32. `dx` may be `dxhat` (of
// one type, not with accumulate). Traffic: 3*N*C elements (4 with accumulate) + 4*N bytes.
struct NormalizeBackwardParams {
  const void* dxhat = nullptr;  // (N, C), dtype: the gradient of xhat, with gamma that of z
  const void* xhat = nullptr;   // (N, C), dtype, or null
  const float* r = nullptr;     // (N), fp32: what forward wrote
  void* dx = nullptr;           // (N, C), the input's type
  int64_t N = 0, C = 0;
  int64_t dxhat_stride = 0, xhat_stride = 0, dx_stride = 0;
  DType dtype = DType::kF32;
  bool accumulate = false;
  Norm norm = Norm::kRms;
  bool wide = false;

  const void* x = nullptr;  // (N, C), the input's type; needed where xhat is null
  int64_t x_stride = 0;
  const void* gamma = nullptr;  // (C), gamma_dtype, or null
  DType gamma_dtype = DType::kF32;
  float offset = 0.0f;
};
Error NormalizeBackward(const NormalizeBackwardParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_NORMALIZE_H_
