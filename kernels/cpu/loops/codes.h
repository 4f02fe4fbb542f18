// Codes of one or two bits (kernels/codes.h) of sixteen lanes at a time.
#ifndef KERNELS_CPU_LOOPS_CODES_H_
#define KERNELS_CPU_LOOPS_CODES_H_

#include <cstdint>
#include <cstring>

#include "kernels/codes.h"
#include "kernels/cpu/loops/activations.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {

// The codes of sixteen lanes, next to one another; and apart again. Two lanes are one number of 64
// bits: the upper one's code joins the lower one's, then these pairs, a byte each, join.
template <int kBits>
static SNUG_INLINE uint32_t Gathered(I32x16 codes) {
  const U64x8 lanes = As<U64x8>(codes);
  uint64_t v = LowestBytes(lanes | lanes >> (32 - kBits));
  if (kBits == 1) {
    v = (v | v >> 6) & 0x000f000f000f000fu;
    v = (v | v >> 12) & 0x000000ff000000ffu;
    return static_cast<uint32_t>(v | v >> 24) & 0xffffu;
  }
  v = (v | v >> 4) & 0x00ff00ff00ff00ffu;
  v = (v | v >> 8) & 0x0000ffff0000ffffu;
  return static_cast<uint32_t>(v | v >> 16);
}
template <int kBits>
static SNUG_INLINE I32x16 Spread(uint32_t word) {
  constexpr U32x16Value kLane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return As<I32x16>(((U32x16{} + word) >> U32x16(kLane * kBits)) & ((1u << kBits) - 1));
}

// The codes of sixteen lanes: how many thresholds each lies above.
static SNUG_INLINE uint32_t TwoBitCodes(F32x16 x, const TwoBit& two_bit) {
#ifdef __AVX512BW__
  const auto above = [&](float threshold) SNUG_LAMBDA -> uint32_t {
    return _mm512_cmp_ps_mask(reinterpret_cast<__m512>(x),
                              reinterpret_cast<__m512>(Splat(threshold)), _CMP_GT_OQ);
  };
  // Thresholds ascend, so codes are 00, 01, 10, 11 as 0, 1, 2, 3 of these are set.
  const uint32_t upper = above(two_bit.threshold[1]);
  const uint32_t lower = above(two_bit.threshold[0]) ^ upper ^ above(two_bit.threshold[2]);
  uint64_t v = lower | uint64_t{upper} << 32;  // A zero between any two bits of either.
  v = (v | v << 8) & 0x00ff00ff00ff00ffu;
  v = (v | v << 4) & 0x0f0f0f0f0f0f0f0fu;
  v = (v | v << 2) & 0x3333333333333333u;
  v = (v | v << 1) & 0x5555555555555555u;
  return static_cast<uint32_t>(v | v >> 31);
#else
  const I32x16 above = SignMask(two_bit.threshold[0] - x) + SignMask(two_bit.threshold[1] - x) +
                       SignMask(two_bit.threshold[2] - x);
  return Gathered<2>(-(above & ~NanMask(x)));
#endif
}

// Codes of the lanes from column c on, a multiple of 16, to and from a row of codes.
template <int kBits, typename Extent>
static SNUG_INLINE void StoreCodes(uint8_t* row, int64_t c, uint32_t word, Extent extent) {
  const int64_t bits = Count(extent) * kBits;
  word &= static_cast<uint32_t>((uint64_t{1} << bits) - 1);
  memcpy(row + c * kBits / 8, &word, (bits + 7) / 8);
}
template <int kBits, typename Extent>
static SNUG_INLINE I32x16 LoadCodes(const uint8_t* row, int64_t c, Extent extent) {
  uint32_t word = 0;
  memcpy(&word, row + c * kBits / 8, (Count(extent) * kBits + 7) / 8);
  return Spread<kBits>(word);
}

// slope[code] of each lane.
template <int kBits>
static SNUG_INLINE F32x16 SlopesOf(I32x16 codes, const float* slope) {
  const I32x16 odd = -(codes & 1);
  const F32x16 low = Select(odd, Splat(slope[1]), Splat(slope[0]));
  if (kBits == 1) return low;
  return Select(-(codes >> 1), Select(odd, Splat(slope[3]), Splat(slope[2])), low);
}

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_CODES_H_
