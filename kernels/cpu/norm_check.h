// Checks that norms (normalize.h) and norms with xhat as codes (quantized_norm.h) have in common.
#ifndef KERNELS_CPU_NORM_CHECK_H_
#define KERNELS_CPU_NORM_CHECK_H_

#include "kernels/cpu/check.h"
#include "kernels/normalize.h"

namespace snug::kernels::cpu {

// All but xhat and z.
inline void CheckNormInput(const NormalizeForwardParams& p, Check& check) {
  check.Type(p.dtype, "dtype")
      .Rows(p.x, "x", p.x_stride, "x_stride")
      .That(p.eps >= 0.0f, ErrorCode::kBadValue, "eps")
      .That(p.norm <= Norm::kLayer, ErrorCode::kBadValue, "norm");
  if (p.residual == nullptr) return;
  check.Rows(p.residual, "residual", p.residual_stride, "residual_stride")
      .Rows(p.h, "h", p.h_stride, "h_stride");
}

inline void CheckNormOutput(const NormalizeForwardParams& p, Check& check) {
  check.Type(p.gamma_dtype, "gamma_dtype")
      .Rows(p.z, "z", p.z_stride, "z_stride")
      .PerRow(p.gamma, "gamma");
}

// All but xhat and x.
inline void CheckNormGradient(const NormalizeBackwardParams& p, Check& check) {
  check.Type(p.dtype, "dtype")
      .Rows(p.dxhat, "dxhat", p.dxhat_stride, "dxhat_stride")
      .PerRow(p.r, "r")
      .Rows(p.dx, "dx", p.dx_stride, "dx_stride")
      .That(p.norm <= Norm::kLayer, ErrorCode::kBadValue, "norm");
  if (p.gamma != nullptr) check.Type(p.gamma_dtype, "gamma_dtype");
}

}  // namespace snug::kernels::cpu

#endif  // KERNELS_CPU_NORM_CHECK_H_
