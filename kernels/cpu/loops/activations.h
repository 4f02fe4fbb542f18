// Activations on vectors: value, as close as kernels/activation.h says, and slope, within 1e-6
// relative or 2e-7 (tests/kernels/vector_test.cc).
#ifndef KERNELS_CPU_LOOPS_ACTIVATIONS_H_
#define KERNELS_CPU_LOOPS_ACTIVATIONS_H_

#include "kernels/activation.h"
#include "kernels/activation_constants.h"
#include "kernels/cpu/loops/exp.h"
#include "kernels/cpu/loops/tanh.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {

// x, or `limit` where x is above it. A NaN without a sign becomes `limit`, one with a sign may.
static SNUG_INLINE F32x16 AtMost(float limit, F32x16 x) {
#ifdef __AVX512BW__
  return As<F32x16>(_mm512_maskz_min_ps(kAll, reinterpret_cast<__m512>(x),
                                        reinterpret_cast<__m512>(Splat(limit))));
#else
  return Select(SignMask(x - limit), x, Splat(limit));
#endif
}

struct Sigmoid {
  F32x16 s;      // 1 / (1 + exp(-z))
  F32x16 minus;  // 1 - s, without cancellation
};

// From exp(-|z|), which cannot overflow.
static SNUG_INLINE Sigmoid SigmoidOf(F32x16 z) {
  const F32x16 t = ExpFlushed(As<F32x16>(As<I32x16>(z) | ~0x7fffffff));
  const F32x16 large = 1.0f / (1.0f + t);
  const F32x16 small = t * large;
  const I32x16 negative = SignMask(z);
  return {Select(negative, small, large), Select(negative, large, small)};
}

// All ones where x is a NaN.
static SNUG_INLINE I32x16 NanMask(F32x16 x) {
  return (0x7f800000 - (As<I32x16>(x) & 0x7fffffff)) >> 31;
}
// All ones where x > limit; a NaN is not.
static SNUG_INLINE I32x16 AboveMask(F32x16 x, float limit) {
  return SignMask(limit - x) & ~NanMask(x);
}

// x s(z) for a z of x's sign, without s: where exp(-z) is infinite x s(z) is 0.
static SNUG_INLINE F32x16 TimesSigmoid(F32x16 x, F32x16 z) {
  return x / (1.0f + ExpFlushed(AtMost(89.0f, -z)));  // From 88.4 on it is.
}

// An activation has its value, and Of for whom the slope is wanted, too.
struct Silu {
  static SNUG_INLINE F32x16 Value(F32x16 x) { return TimesSigmoid(x, x); }
  static SNUG_INLINE ValueAndSlope Of(F32x16 x) {
    const Sigmoid sigmoid = SigmoidOf(x);
    return {x * sigmoid.s, sigmoid.s * (1.0f + x * sigmoid.minus)};
  }
};

struct GeluTanh {
  static constexpr float kCubicTwice = activation::kTwice * activation::kCubic;
  static SNUG_INLINE F32x16 Value(F32x16 x) {
    return TimesSigmoid(x, x * (activation::kTwice + kCubicTwice * (x * x)));
  }
  static SNUG_INLINE ValueAndSlope Of(F32x16 x) {
    const F32x16 square = x * x;
    const Sigmoid sigmoid = SigmoidOf(x * (activation::kTwice + kCubicTwice * square));
    // Far out the sigmoid has saturated and only an infinity must not arise to meet its 0.
    constexpr float kFar = 1e6f;
    const F32x16 near = Select(SignMask(square - kFar), square, Splat(kFar));
    const F32x16 rise = x * (activation::kTwice + 3.0f * kCubicTwice * near);
    return {x * sigmoid.s, sigmoid.s * (1.0f + rise * sigmoid.minus)};
  }
};

struct Gelu {
  // Without an exponential: Phi(-t) = P(t)^-8, P of degree 8 minimax over t <= 5.3 of what the
  // header's bound on the value leaves; from there on it only falls, and at kFar its power is
  // infinite. (Beyond, P's odd and even powers, which are added up apart so that neither half waits
  // for the other, would be infinities of either sign.)
  static SNUG_INLINE F32x16 Value(F32x16 x) {
    constexpr float kFar = 1000.0f;
    const F32x16 t = AtMost(kFar, As<F32x16>(As<I32x16>(x) & 0x7fffffff));
    const F32x16 square = t * t;
    F32x16 odd = square * -2.04677799e-5f + 8.6421067e-5f;
    odd = odd * square + 9.31572262e-3f;
    odd = odd * square + 1.08752288e-1f;
    F32x16 even = square * 3.36089784e-6f + 1.1853638e-4f;
    even = even * square + 1.12672267e-3f;
    even = even * square + 4.8869811e-2f;
    even = even * square + 1.09050834f;
    const F32x16 root = odd * t + even, fourth = root * root, half = fourth * fourth;
    const F32x16 tail = 1.0f / (half * half);
    return x * Select(SignMask(x), tail, 1.0f - tail);
  }
  static SNUG_INLINE ValueAndSlope Of(F32x16 x) {
    const F32x16 t = As<F32x16>(As<I32x16>(x) & 0x7fffffff);
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
  static SNUG_INLINE F32x16 Value(F32x16 x) { return Of(x).value; }
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
    case Activation::kTanh:
      return body(HyperbolicTangent{});
  }
}

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_ACTIVATIONS_H_
