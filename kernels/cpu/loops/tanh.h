// The hyperbolic tangent on vectors, with its slope.
#ifndef KERNELS_CPU_LOOPS_TANH_H_
#define KERNELS_CPU_LOOPS_TANH_H_

#include "kernels/cpu/loops/exp.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {

// Of a function at a place.
struct ValueAndSlope {
  F32x16 value, slope;
};

// The slope is 1 - value^2, without cancellation. Both from e = exp(-2|y|), which cannot overflow:
// (1 - e) / (1 + e) and 4 e / (1 + e)^2. Near 0, where the first would cancel, the polynomial of
// Cephes tanhf. At most 3 units in the last place off (tests/kernels/vector_test.cc); NaN stays
// NaN.
static SNUG_INLINE ValueAndSlope Tanh(F32x16 y) {
  constexpr float kNear = 0.625f;
  const F32x16 magnitude = As<F32x16>(As<I32x16>(y) & 0x7fffffff);
  const F32x16 e = ExpFlushed(-2.0f * magnitude);
  const F32x16 inverse = 1.0f / (1.0f + e);
  const F32x16 far = (1.0f - e) * inverse;
  const F32x16 square = y * y;
  F32x16 p = Splat(-5.70498872745e-3f);
  p = p * square + 2.06390887954e-2f;
  p = p * square - 5.37397155531e-2f;
  p = p * square + 1.33314422036e-1f;
  p = p * square - 3.33332819422e-1f;
  const F32x16 near = magnitude + magnitude * square * p;
  const F32x16 value = Select(SignMask(magnitude - kNear), near, far);
  const I32x16 sign = As<I32x16>(y) & ~0x7fffffff;
  return {As<F32x16>(As<I32x16>(value) | sign), 4.0f * e * inverse * inverse};
}

// As activations.h has them.
struct HyperbolicTangent {
  static SNUG_INLINE F32x16 Value(F32x16 x) { return Tanh(x).value; }
  static SNUG_INLINE ValueAndSlope Of(F32x16 x) { return Tanh(x); }
};

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_TANH_H_
