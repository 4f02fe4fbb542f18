// Gated linear units (Shazeer 2020, eqs. 5 and 6): the MLP of the decoder families. Both
// activations are a gate times a sigmoid of it, so one loop serves both.
//
//   SwiGLU: z = g                                            Llama, Mistral, Qwen, Phi-3
//   GeGLU:  z = 2 sqrt(2/pi) (g + 0.044715 g^3)              Gemma: GELU in its tanh form
//   s = 1 / (1 + exp(-z))      p = g * s * u
//   du = dp * g * s            dg = dp * u * s * (1 + g * z' * (1 - s))
#ifndef KERNELS_GLU_H_
#define KERNELS_GLU_H_

#include <cstdint>

#include "kernels/types.h"

namespace snug::kernels {

enum class Gate : uint8_t { kSilu, kGeluTanh };

// g, u -> p. `p` may be `g` or `u`. Traffic: 3*N*C elements.
struct GluForwardParams {
  const void* g = nullptr;  // (N, C), dtype: the gate
  const void* u = nullptr;  // (N, C), dtype: the up projection
  void* p = nullptr;        // (N, C), dtype
  int64_t N = 0, C = 0;
  int64_t g_stride = 0, u_stride = 0, p_stride = 0;
  DType dtype = DType::kF32;
  Gate gate = Gate::kSilu;
};
Error GluForward(const GluForwardParams& p, Stream stream);

// dp, g, u -> dg, du. Each of `dg`, `du` may be any of `dp`, `g`, `u`, and either may be null, but
// they are two tensors. Traffic: 5*N*C elements.
struct GluBackwardParams {
  const void* dp = nullptr;  // (N, C), dtype
  const void* g = nullptr;   // (N, C), dtype
  const void* u = nullptr;   // (N, C), dtype; not needed without dg
  void* dg = nullptr;        // (N, C), dtype, or null
  void* du = nullptr;        // (N, C), dtype, or null
  int64_t N = 0, C = 0;
  int64_t dp_stride = 0, g_stride = 0, u_stride = 0, dg_stride = 0, du_stride = 0;
  DType dtype = DType::kF32;
  Gate gate = Gate::kSilu;
};
Error GluBackward(const GluBackwardParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_GLU_H_
