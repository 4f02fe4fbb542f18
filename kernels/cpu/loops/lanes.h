// Sixteen fp32 lanes, on every instruction set (wide.h). Lane counts, reduction trees and the order
// of operations are fixed and no multiply-add is contracted, so that all instruction sets give the
// same bits.
// Here: the lanes, and number types in memory. vector.h: rows of any length, and sums.
//
// Files that include this are compiled once per instruction set (SNUG_ISA names it, see
// kernels/CMakeLists.txt). Everything here is inlined or internal: a function with external
// linkage, std:: templates included, could be merged by the linker with one compiled for a newer
// machine.
// Lanes are never compared: GCC 12 does that lane by lane on registers narrower than the vector.
// Masks (all ones or zero) come from sign bits.
#ifndef KERNELS_CPU_LOOPS_LANES_H_
#define KERNELS_CPU_LOOPS_LANES_H_

#include <cstdint>
#include <cstring>

#include "kernels/cpu/loops/wide.h"
#include "kernels/cpu/loops/widths.h"
#include "kernels/types.h"

#ifdef __AVX512BW__
#include <immintrin.h>
#endif

namespace snug::kernels::SNUG_ISA {

inline constexpr int64_t kLanes = 16;

// A whole vector, as an argument.
struct Whole {};

// Less 0, not plus 0, which could not be left out: -0 + 0 is 0.
static SNUG_INLINE F32x16 Splat(float value) { return value - F32x16{}; }

static SNUG_INLINE F32x16 Select(I32x16 mask, F32x16 yes, F32x16 no) {
  return As<F32x16>((As<I32x16>(yes) & mask) | (As<I32x16>(no) & ~mask));
}

static SNUG_INLINE F32x16 Load(const float* x, Whole) { return FromMemory<F32x16>(x); }
static SNUG_INLINE F32x16 Load(const bf16* x, Whole) {
  U16x16 v;
  memcpy(&v, x, sizeof(v));
#ifdef __AVX512BW__
  // Halves to the upper halves of words in one step, not widened first and then shifted.
  constexpr U16x32 kFrom = {0, 0, 0, 1, 0, 2,  0, 3,  0, 4,  0, 5,  0, 6,  0, 7,
                            0, 8, 0, 9, 0, 10, 0, 11, 0, 12, 0, 13, 0, 14, 0, 15};
  return As<F32x16>(
      _mm512_maskz_permutexvar_epi16(0xaaaaaaaa, reinterpret_cast<__m512i>(kFrom),
                                     _mm512_castsi256_si512(reinterpret_cast<__m256i>(v))));
#else
  return As<F32x16>(Widened(v) << 16);
#endif
}
static SNUG_INLINE F32x16 Load(const f16* x, Whole) {
  U16x16 v;
  memcpy(&v, x, sizeof(v));
  const U32x16 bits = Widened(v), magnitude = bits & 0x7fffu;
  // As ToFloat of types.h: what is below 0x400 is subnormal, what is above 0x7bff not finite.
  const I32x16 subnormal = As<I32x16>(magnitude - 0x400u) >> 31;
  const U32x16 beyond = As<U32x16>(As<I32x16>(0x7bffu - magnitude) >> 31);
  const U32x16 normal = (magnitude << 13) + (112u << 23) + (beyond & (112u << 23));
  const F32x16 small = Convert<F32x16>(As<I32x16>(magnitude)) * 0x1p-24f;
  const U32x16 value = As<U32x16>(Select(subnormal, small, As<F32x16>(normal)));
  return As<F32x16>(value | (bits & 0x8000u) << 16);
}
static SNUG_INLINE void Store(float* y, F32x16 v, Whole) { ToMemory(y, v); }
// To nearest even, NaN to 0x7fc0, as ToBf16 of types.h: in the upper halves, the lower ones 0.
static SNUG_INLINE U32x16 RoundedToBf16(F32x16 v) {
  const U32x16 bits = As<U32x16>(v);
  const U32x16 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
  const U32x16 nan = As<U32x16>(As<I32x16>(0x7f800000u - (bits & 0x7fffffffu)) >> 31);
  return (rounded & ~nan) | (0x7fc00000u & nan);
}
#ifdef __AVX512BF16__
// The lanes of which the machine's instruction makes another number: subnormals, NaN.
static SNUG_INLINE __mmask16 RoundsOtherwise(F32x16 v) {
  return _mm512_fpclass_ps_mask(reinterpret_cast<__m512>(v), 0x20 | 0x01 | 0x80);
}
#endif
static SNUG_INLINE void Store(bf16* y, F32x16 v, Whole) {
#ifdef __AVX512BF16__
  if (__builtin_expect(RoundsOtherwise(v) == 0, true)) {
    const __m256bh rounded = _mm512_cvtneps_pbh(reinterpret_cast<__m512>(v));
    memcpy(y, &rounded, sizeof(rounded));
    return;
  }
#endif
  const U16x16 half = Narrowed(RoundedToBf16(v) >> 16);
  memcpy(y, &half, sizeof(half));
}
// As ToF16 of types.h.
static SNUG_INLINE void Store(f16* y, F32x16 v, Whole) {
  const U32x16 bits = As<U32x16>(v), magnitude = bits & 0x7fffffffu;
  const auto below = [&](uint32_t limit)
                         SNUG_LAMBDA { return As<U32x16>(As<I32x16>(magnitude - limit) >> 31); };
  const U32x16 subnormal = below(0x38800000u), finite = below(0x47800000u);
  const U32x16 number = below(0x7f800001u);
  const U32x16 steps = As<U32x16>(As<F32x16>(magnitude) + 0.5f) - 0x3f000000u;
  const U32x16 normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13;
  const U32x16 value = (steps & subnormal) | (normal & ~subnormal & finite) | (0x7c00u & ~finite) |
                       (0x7e00u & ~number);
  const U16x16 half = Narrowed(value | (bits >> 16 & 0x8000u));
  memcpy(y, &half, sizeof(half));
}
}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_LANES_H_
