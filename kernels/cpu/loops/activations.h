// Activations on vectors: value and slope.
#ifndef KERNELS_CPU_LOOPS_ACTIVATIONS_H_
#define KERNELS_CPU_LOOPS_ACTIVATIONS_H_

#include "kernels/activation.h"
#include "kernels/activation_constants.h"
#include "kernels/cpu/loops/exp.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {

struct ValueAndSlope {
  F32x16 value, slope;
};

struct Sigmoid {
  F32x16 s;      // 1 / (1 + exp(-z))
  F32x16 minus;  // 1 - s, without cancellation
};

// From exp(-|z|), which cannot overflow.
static SNUG_INLINE Sigmoid SigmoidOf(F32x16 z) {
  const F32x16 t = ExpFlushed(reinterpret_cast<F32x16>(reinterpret_cast<I32x16>(z) | ~0x7fffffff));
  const F32x16 large = 1.0f / (1.0f + t);
  const F32x16 small = t * large;
  const I32x16 negative = SignMask(z);
  return {Select(negative, small, large), Select(negative, large, small)};
}

// All ones where x is a NaN.
static SNUG_INLINE I32x16 NanMask(F32x16 x) {
  return (0x7f800000 - (reinterpret_cast<I32x16>(x) & 0x7fffffff)) >> 31;
}
// All ones where x > limit; a NaN is not.
static SNUG_INLINE I32x16 AboveMask(F32x16 x, float limit) {
  return SignMask(limit - x) & ~NanMask(x);
}

struct Silu {
  static SNUG_INLINE ValueAndSlope Of(F32x16 x) {
    const Sigmoid sigmoid = SigmoidOf(x);
    return {x * sigmoid.s, sigmoid.s * (1.0f + x * sigmoid.minus)};
  }
};

struct GeluTanh {
  static SNUG_INLINE ValueAndSlope Of(F32x16 x) {
    const F32x16 square = x * x;
    const Sigmoid sigmoid = SigmoidOf(activation::kTwice * (x + activation::kCubic * x * x * x));
    // Far out the sigmoid has saturated and only an infinity must not arise to meet its 0.
    constexpr float kFar = 1e6f;
    const F32x16 near = Select(SignMask(square - kFar), square, Splat(kFar));
    const F32x16 rise = activation::kTwice * x * (1.0f + 3.0f * activation::kCubic * near);
    return {x * sigmoid.s, sigmoid.s * (1.0f + rise * sigmoid.minus)};
  }
};

struct Gelu {
  static SNUG_INLINE ValueAndSlope Of(F32x16 x) {
    const F32x16 t = reinterpret_cast<F32x16>(reinterpret_cast<I32x16>(x) & 0x7fffffff);
    const F32x16 e = ExpFlushed((-0.5f * x) * x);
    const F32x16 u = 1.0f / (1.0f + activation::kScale * t);
    F32x16 q = activation::kTail7 * u + activation::kTail6;
    q = q * u + activation::kTail5;
    q = q * u + activation::kTail4;
    q = q * u + activation::kTail3;
    q = q * u + activation::kTail2;
    q = q * u + activation::kTail1;
    q = q * u + activation::kTail0;
    const F32x16 tail = e * (q * u);
    const F32x16 below = Select(SignMask(x), tail, 1.0f - tail);
    return {x * below, below + x * (e * activation::kDensity)};
  }
};

struct Relu {
  static SNUG_INLINE ValueAndSlope Of(F32x16 x) {
    const I32x16 above = AboveMask(x, 0.0f);
    return {Select(above | NanMask(x), x, F32x16{}), Select(above, Splat(1.0f), F32x16{})};
  }
};

// body(Silu{}), body(GeluTanh{}), ...
template <typename Body>
static inline void ByActivation(Activation activation, Body body) {
  switch (activation) {
    case Activation::kSilu:
      return body(Silu{});
    case Activation::kGeluTanh:
      return body(GeluTanh{});
    case Activation::kGelu:
      return body(Gelu{});
    case Activation::kRelu:
      return body(Relu{});
  }
}

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_ACTIVATIONS_H_
