// Sixteen lanes of 32 bits from sixteen narrower numbers, and back.
#ifndef KERNELS_CPU_LOOPS_WIDTHS_H_
#define KERNELS_CPU_LOOPS_WIDTHS_H_

#include <cstdint>
#include <type_traits>

#include "kernels/cpu/loops/wide.h"

#ifdef __AVX512BW__
#include <immintrin.h>
#endif

namespace snug::kernels::SNUG_ISA {

// Narrowed: the lower halves of lanes whose upper halves are 0. NarrowedTo<U8x16 or I8x16>: the
// lowest byte of each lane, whatever is above it. LowestBytes: of each number, the first in the
// lowest byte.
#if defined(__AVX512BW__)

// Where the machine has one instruction for it, GCC 12 takes five. (Its unmasked intrinsics warn of
// what they leave undefined.)
inline constexpr __mmask16 kAll = 0xffff;
static SNUG_INLINE U32x16 Widened(U16x16 v) {
  return As<U32x16>(_mm512_maskz_cvtepu16_epi32(kAll, reinterpret_cast<__m256i>(v)));
}
static SNUG_INLINE I32x16 Widened(U8x16 v) {
  return As<I32x16>(_mm512_maskz_cvtepu8_epi32(kAll, reinterpret_cast<__m128i>(v)));
}
static SNUG_INLINE I32x16 Widened(I8x16 v) {
  return As<I32x16>(_mm512_maskz_cvtepi8_epi32(kAll, reinterpret_cast<__m128i>(v)));
}
static SNUG_INLINE U16x16 Narrowed(U32x16 v) {
  return reinterpret_cast<U16x16>(_mm512_maskz_cvtepi32_epi16(kAll, reinterpret_cast<__m512i>(v)));
}

#elif defined(SNUG_HALVES)

static SNUG_INLINE U32x16 Widened(U16x16 v) {
  const __m256i all = reinterpret_cast<__m256i>(v);
  return {reinterpret_cast<U32x16::Half>(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(all))),
          reinterpret_cast<U32x16::Half>(_mm256_cvtepu16_epi32(_mm256_extracti128_si256(all, 1)))};
}
static SNUG_INLINE I32x16 Widened(U8x16 v) {
  const __m128i all = reinterpret_cast<__m128i>(v);
  return {reinterpret_cast<I32x16::Half>(_mm256_cvtepu8_epi32(all)),
          reinterpret_cast<I32x16::Half>(_mm256_cvtepu8_epi32(_mm_bsrli_si128(all, 8)))};
}
static SNUG_INLINE I32x16 Widened(I8x16 v) {
  const __m128i all = reinterpret_cast<__m128i>(v);
  return {reinterpret_cast<I32x16::Half>(_mm256_cvtepi8_epi32(all)),
          reinterpret_cast<I32x16::Half>(_mm256_cvtepi8_epi32(_mm_bsrli_si128(all, 8)))};
}
// Packing mixes the halves' quarters.
static SNUG_INLINE __m256i InOrder(__m256i packed) {
  return _mm256_permute4x64_epi64(packed, 0xd8);
}
static SNUG_INLINE U16x16 Narrowed(U32x16 v) {
  return reinterpret_cast<U16x16>(InOrder(
      _mm256_packus_epi32(reinterpret_cast<__m256i>(v.low), reinterpret_cast<__m256i>(v.high))));
}
template <typename Bytes>
static SNUG_INLINE Bytes NarrowedTo(I32x16 all) {
  // Packing saturates, so that what is packed are numbers that fit.
  const I32x16 v = std::is_same_v<Bytes, I8x16> ? all << 24 >> 24 : all & 0xff;
  const __m256i words = InOrder(
      _mm256_packs_epi32(reinterpret_cast<__m256i>(v.low), reinterpret_cast<__m256i>(v.high)));
  const __m128i low = _mm256_castsi256_si128(words), high = _mm256_extracti128_si256(words, 1);
  constexpr bool kSigned = std::is_same_v<Bytes, I8x16>;
  return reinterpret_cast<Bytes>(kSigned ? _mm_packs_epi16(low, high)
                                         : _mm_packus_epi16(low, high));
}
// The lowest bytes of two numbers are in the words 0 and 8, of the lower and the upper quarters.
static SNUG_INLINE uint64_t LowestBytes(U64x8::Half v) {
  const __m256i pairs =
      _mm256_shuffle_epi8(reinterpret_cast<__m256i>(v), _mm256_set1_epi16(0x0800));
  return static_cast<uint64_t>(_mm256_extract_epi16(pairs, 0)) |
         static_cast<uint64_t>(_mm256_extract_epi16(pairs, 8)) << 16;
}
static SNUG_INLINE uint64_t LowestBytes(U64x8 v) {
  return LowestBytes(v.low) | LowestBytes(v.high) << 32;
}

#else

static SNUG_INLINE U32x16 Widened(U16x16 v) { return __builtin_convertvector(v, U32x16); }
static SNUG_INLINE I32x16 Widened(U8x16 v) { return __builtin_convertvector(v, I32x16); }
static SNUG_INLINE I32x16 Widened(I8x16 v) { return __builtin_convertvector(v, I32x16); }
static SNUG_INLINE U16x16 Narrowed(U32x16 v) { return __builtin_convertvector(v, U16x16); }

#endif

#ifndef SNUG_HALVES
template <typename Bytes>
static SNUG_INLINE Bytes NarrowedTo(I32x16 v) {
  return __builtin_convertvector(v, Bytes);
}
static SNUG_INLINE uint64_t LowestBytes(U64x8 v) {
  using U8x8 = uint8_t __attribute__((vector_size(8)));
  return reinterpret_cast<uint64_t>(__builtin_convertvector(v, U8x8));
}
#endif

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_WIDTHS_H_
