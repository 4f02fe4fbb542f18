// SwiGLU (Shazeer 2020, eq. 6): the gated activation of Llama's MLP.
//
//   s = 1 / (1 + exp(-g))      p = g * s * u
//   du = dp * g * s            dg = dp * u * s * (1 + g * (1 - s))
#ifndef KERNELS_SWIGLU_H_
#define KERNELS_SWIGLU_H_

#include <cstdint>

#include "kernels/types.h"

namespace snug::kernels {

// g, u -> p. `p` may be `g` or `u`. Traffic: 3*N*C elements.
struct SwiGluForwardParams {
  const void* g = nullptr;  // (N, C), dtype: the gate
  const void* u = nullptr;  // (N, C), dtype: the up projection
  void* p = nullptr;        // (N, C), dtype
  int64_t N = 0, C = 0;
  int64_t g_stride = 0, u_stride = 0, p_stride = 0;
  DType dtype = DType::kF32;
};
Error SwiGluForward(const SwiGluForwardParams& p, Stream stream);

// dp, g, u -> dg, du. Each of `dg`, `du` may be any of `dp`, `g`, `u`, and either may be null, but
// they are two tensors. Traffic: 5*N*C elements.
struct SwiGluBackwardParams {
  const void* dp = nullptr;  // (N, C), dtype
  const void* g = nullptr;   // (N, C), dtype
  const void* u = nullptr;   // (N, C), dtype; not needed without dg
  void* dg = nullptr;        // (N, C), dtype, or null
  void* du = nullptr;        // (N, C), dtype, or null
  int64_t N = 0, C = 0;
  int64_t dp_stride = 0, g_stride = 0, u_stride = 0, dg_stride = 0, du_stride = 0;
  DType dtype = DType::kF32;
};
Error SwiGluBackward(const SwiGluBackwardParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_SWIGLU_H_
