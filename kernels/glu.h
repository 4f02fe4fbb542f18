// Gated linear units (Shazeer 2020, eqs. 5 and 6): the MLP of the decoder families, with the
// activations h of activation.h.
//
//   SwiGLU: h = SiLU                    Llama, Mistral, Qwen, Phi-3
//   GeGLU:  h = GELU in its tanh form   Gemma; the erf form and ReLU are there as well
//   p = h(g) * u        du = dp * h(g)        dg = dp * u * h'(g)
#ifndef KERNELS_GLU_H_
#define KERNELS_GLU_H_

#include <cstdint>

#include "kernels/activation.h"
#include "kernels/types.h"

namespace snug::kernels {

using Gate = Activation;

// g, u -> p, and what a backward without g needs: h(g) and the codes of g. `p` may be `g` or `u`,
// `a` may be `g`. Traffic: 3*N*C elements (4 with a) + N*C/4 bytes of codes.
struct GluForwardParams {
  const void* g = nullptr;  // (N, C), dtype: the gate
  const void* u = nullptr;  // (N, C), dtype: the up projection
  void* p = nullptr;        // (N, C), dtype
  int64_t N = 0, C = 0;
  int64_t g_stride = 0, u_stride = 0, p_stride = 0;
  DType dtype = DType::kF32;
  Gate gate = Gate::kSilu;

  void* a = nullptr;         // (N, C), dtype, or null: h(g)
  uint8_t* codes = nullptr;  // (N, CodeBytes(C)), or null: of g, by `two_bit` (codes.h)
  int64_t a_stride = 0, code_stride = 0;
  TwoBit two_bit = {};  // Needed for codes: TwoBitOf(gate), or another fit.
};
Error GluForward(const GluForwardParams& p, Stream stream);

// dp, g, u -> dg, du; with codes dp, a, u and codes: du = dp * a, dg = dp * u * slope[code]. Each
// of `dg`, `du` may be any of `dp`, `g`, `u`, `a`, and either may be null, but they are two
// tensors. Traffic: 5*N*C elements (+ N*C/4 bytes of codes).
struct GluBackwardParams {
  const void* dp = nullptr;  // (N, C), dtype
  const void* g = nullptr;   // (N, C), dtype; not needed with codes
  const void* u = nullptr;   // (N, C), dtype; not needed without dg
  void* dg = nullptr;        // (N, C), dtype, or null
  void* du = nullptr;        // (N, C), dtype, or null
  int64_t N = 0, C = 0;
  int64_t dp_stride = 0, g_stride = 0, u_stride = 0, dg_stride = 0, du_stride = 0;
  DType dtype = DType::kF32;
  Gate gate = Gate::kSilu;

  const uint8_t* codes = nullptr;  // (N, CodeBytes(C)), or null: what forward wrote
  const void* a = nullptr;         // (N, C), dtype: h(g); needed with codes for du
  int64_t code_stride = 0, a_stride = 0;
  TwoBit two_bit = {};  // Of forward; its slopes are used.
};
Error GluBackward(const GluBackwardParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_GLU_H_
