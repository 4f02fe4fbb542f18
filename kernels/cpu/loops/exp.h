// The exponential function on vectors: a polynomial, no calls into a library lane by lane.
#ifndef KERNELS_CPU_LOOPS_EXP_H_
#define KERNELS_CPU_LOOPS_EXP_H_

#include <cstdint>

#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {

constexpr float kLog2E = 1.44269504088896341f;
constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer.

// (exp(r) - 1 - r) / r^2 for |r| <= ln 2 / 2: the polynomial of Cephes expf.
static SNUG_INLINE F32x16 ExpTail(F32x16 r) {
  F32x16 p = Splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  return p * r + 5.0000001201e-1f;
}

// exp(x): at most 1.1 units in the last place off for normal results (tests/kernels/vector_test.cc
// tries every 97th fp32), gradual underflow, exp(-inf) = 0, exp(inf) = inf, NaN stays NaN.
// Range reduction x = n ln 2 + r with ln 2 in two parts (Cody & Waite), the product n * kLn2High is
// exact; polynomial of Cephes expf.
static SNUG_INLINE F32x16 Exp(F32x16 x) {
  constexpr float kLimit = 104.0f;  // Beyond it the result is 0 or infinite anyway.
  constexpr int32_t kLimitBits = 0x42d00000, kInfinityBits = 0x7f800000;
  const I32x16 bits = reinterpret_cast<I32x16>(x);
  const I32x16 magnitude = bits & 0x7fffffff;
  const I32x16 beyond = ((kLimitBits - magnitude) >> 31) & ~((kInfinityBits - magnitude) >> 31);
  const F32x16 limit = reinterpret_cast<F32x16>((bits & ~0x7fffffff) | kLimitBits);
  x = Select(beyond, limit, x);
  const F32x16 n = (x * kLog2E + kRound) - kRound;
  const F32x16 r = (x - n * kLn2High) - n * kLn2Low;
  F32x16 p = (ExpTail(r) * r) * r + r + 1.0f;
  // 2^n in two factors, since n may lie outside the range of exponents.
  const I32x16 whole = __builtin_convertvector(n, I32x16);
  const I32x16 half = whole >> 1;
  p *= reinterpret_cast<F32x16>((half + 127) << 23);
  return p * reinterpret_cast<F32x16>((whole - half + 127) << 23);
  static_assert(kLimit == 104.0f && kLimitBits == 0x42d00000);
}

// exp(x) for x < 88 in two thirds of the instructions: at most 1.4 * 2^-24 of the result off, 0
// below -87 and for -inf, NaN stays NaN. As above, with the polynomial of degree 6 that is best on
// |r| <= ln 2 / 2, and 2^n in one factor.
static SNUG_INLINE F32x16 ExpFlushed(F32x16 x) {
  const F32x16 shifted = x * kLog2E + kRound, n = shifted - kRound;  // n in the lowest bits, too.
  const F32x16 r = (x - n * kLn2High) - n * kLn2Low;
  F32x16 p = Splat(1.3814539415818e-3f);
  p = p * r + 8.3687454462051e-3f;
  p = p * r + 4.1668388992548e-2f;
  p = p * r + 1.6666521131992e-1f;
  p = p * r + 4.9999994039536e-1f;
  p = (p * r) * r + r + 1.0f;
  p *= reinterpret_cast<F32x16>((reinterpret_cast<U32x16>(shifted) << 23) + 0x3f800000u);
  // The bits of what lies in [-inf, -87), and of nothing else, are `kBits` from kFirst on.
  constexpr uint32_t kFirst = 0xc2ae0001u, kBits = 0xff800000u - kFirst + 1;
  const U32x16 place = reinterpret_cast<U32x16>(x) - kFirst;
  const I32x16 beyond = reinterpret_cast<I32x16>((place - kBits) & ~place) >> 31;
  return reinterpret_cast<F32x16>(reinterpret_cast<I32x16>(p) & ~beyond);
}

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_EXP_H_
