// Codes of one or two bits (kernels/codes.h) of sixteen lanes at a time.
#ifndef KERNELS_CPU_LOOPS_CODES_H_
#define KERNELS_CPU_LOOPS_CODES_H_

#include <cstdint>
#include <cstring>

#include "kernels/codes.h"
#include "kernels/cpu/loops/activations.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {

using U8x16 = uint8_t __attribute__((vector_size(16)));

// Code of each lane: how many thresholds it lies above.
static SNUG_INLINE I32x16 TwoBitCodes(F32x16 x, const TwoBit& two_bit) {
  return -(AboveMask(x, two_bit.threshold[0]) + AboveMask(x, two_bit.threshold[1]) +
           AboveMask(x, two_bit.threshold[2]));
}

// Eight bytes with a code each, next to one another; and apart again.
template <int kBits>
static SNUG_INLINE uint64_t Gathered(uint64_t v) {
  if (kBits == 1) {
    v = (v | v >> 7) & 0x0003000300030003u;
    v = (v | v >> 14) & 0x0000000f0000000fu;
    return (v | v >> 28) & 0xffu;
  }
  v = (v | v >> 6) & 0x000f000f000f000fu;
  v = (v | v >> 12) & 0x000000ff000000ffu;
  return (v | v >> 24) & 0xffffu;
}
template <int kBits>
static SNUG_INLINE uint64_t Spread(uint64_t v) {
  if (kBits == 1) {
    v = (v | v << 28) & 0x0000000f0000000fu;
    v = (v | v << 14) & 0x0003000300030003u;
    return (v | v << 7) & 0x0101010101010101u;
  }
  v = (v | v << 24) & 0x000000ff000000ffu;
  v = (v | v << 12) & 0x000f000f000f000fu;
  return (v | v << 6) & 0x0303030303030303u;
}

static SNUG_INLINE int64_t Count(Whole) { return kLanes; }
static SNUG_INLINE int64_t Count(Part part) { return part.count; }

// Codes of the lanes from column c on, a multiple of 16, to and from a row of codes.
template <int kBits, typename Extent>
static SNUG_INLINE void StoreCodes(uint8_t* row, int64_t c, I32x16 codes, Extent extent) {
  const U8x16 bytes = __builtin_convertvector(codes, U8x16);
  uint64_t halves[2];
  memcpy(halves, &bytes, sizeof(halves));
  const uint64_t all = Gathered<kBits>(halves[0]) | Gathered<kBits>(halves[1]) << 8 * kBits;
  const int64_t bits = Count(extent) * kBits;
  const uint32_t word = static_cast<uint32_t>(all & ((uint64_t{1} << bits) - 1));
  memcpy(row + c * kBits / 8, &word, (bits + 7) / 8);
}
template <int kBits, typename Extent>
static SNUG_INLINE I32x16 LoadCodes(const uint8_t* row, int64_t c, Extent extent) {
  uint32_t word = 0;
  memcpy(&word, row + c * kBits / 8, (Count(extent) * kBits + 7) / 8);
  const uint64_t low = word & ((1u << 8 * kBits) - 1), high = word >> 8 * kBits;
  const uint64_t halves[2] = {Spread<kBits>(low), Spread<kBits>(high)};
  U8x16 bytes;
  memcpy(&bytes, halves, sizeof(bytes));
  return __builtin_convertvector(bytes, I32x16);
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
