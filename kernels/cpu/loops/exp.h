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

// v, but 0 where x lies in [-inf, -87). A NaN is not below.
static SNUG_INLINE F32x16 ZeroFarBelow(F32x16 x, F32x16 v) {
#ifdef __AVX512BW__
  const __m512 limit = reinterpret_cast<__m512>(Splat(-87.0f)), from = reinterpret_cast<__m512>(x);
  const __mmask16 near = _mm512_cmp_ps_mask(from, limit, _CMP_NLT_UQ);
  return As<F32x16>(_mm512_maskz_mov_ps(near, reinterpret_cast<__m512>(v)));
#else
  // The bits of what lies there, and of nothing else, are `kBits` from kFirst on.
  constexpr uint32_t kFirst = 0xc2ae0001u, kBits = 0xff800000u - kFirst + 1;
  const U32x16 place = As<U32x16>(x) - kFirst;
  const I32x16 beyond = As<I32x16>((place - kBits) & ~place) >> 31;
  return As<F32x16>(As<I32x16>(v) & ~beyond);
#endif
}

// exp(x) for x < 88: at most 3.5 * 2^-24 of the result off, 0 below -87 and for -inf, NaN stays
// NaN; infinite from 88.4 to 89. Range reduction x = n ln 2 + r with ln 2 in two parts (Cody &
// Waite), the product n * kLn2High is exact; of the polynomials of degree 5 that are 1 at 0 the
// best on |r| <= ln 2 / 2 (1.5 * 2^-24), odd and even powers apart so that neither half waits for
// the other.
static SNUG_INLINE F32x16 ExpFlushed(F32x16 x) {
  constexpr float kShift = kRound + 127.0f;  // Leaves n + 127, the exponent, in the lowest bits.
  const F32x16 shifted = x * kLog2E + kShift, n = shifted - kShift;
  const F32x16 r = (x - n * kLn2High) - n * kLn2Low;
  const F32x16 square = r * r;
  const F32x16 odd =
      (square * 8.290272206068e-3f + 1.666763871908e-1f) * square + 9.999997019768e-1f;
  const F32x16 even = (square * 4.189816117287e-2f + 4.999914765357e-1f) * square;
  const F32x16 p = (odd * r + even) + 1.0f;
  return ZeroFarBelow(x, p * As<F32x16>(As<U32x16>(shifted) << 23));
}

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_EXP_H_
