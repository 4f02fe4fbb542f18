// Elements of frozen weights, in fp32.
#ifndef KERNELS_CPU_LOOPS_FROZEN_VALUES_H_
#define KERNELS_CPU_LOOPS_FROZEN_VALUES_H_

#include <cstdint>
#include <cstring>

#include "kernels/cpu/loops/vector.h"
#include "kernels/frozen_linear.h"
#include "kernels/nf4_levels.h"

namespace snug::kernels::SNUG_ISA {

// Elements [e, e + n) of a weight, all in one block of 64.
static SNUG_INLINE void Nf4Values(const Nf4Weight& w, int64_t e, int64_t n, float* values) {
  const auto* codes = static_cast<const uint8_t*>(w.codes);
  const float absmax = Nf4Absmax(w, kDynamicMap, e / kNf4Block);
  float scaled[16];  // The block's levels: each product is rounded as the definition has it.
  for (int level = 0; level < 16; ++level) scaled[level] = kNf4Levels.at[level] * absmax;
  int64_t i = 0;
  if (e % 2 == 1 && n > 0) values[i++] = scaled[codes[e / 2] & 15];
  for (; i + 2 <= n; i += 2) {
    const uint8_t pair = codes[(e + i) / 2];
    values[i] = scaled[pair >> 4];
    values[i + 1] = scaled[pair & 15];
  }
  if (i < n) values[i] = scaled[codes[(e + i) / 2] >> 4];
}

// table[index] of each lane; indices below 16.
static SNUG_INLINE F32x16 Lookup(F32x16 table, I32x16 index) {
#ifdef __AVX512F__
  return __builtin_shuffle(table, index);
#else
  float from[kLanes], found[kLanes];
  int32_t at[kLanes];
  ToMemory(from, table);
  ToMemory(at, index);
  for (int64_t lane = 0; lane < kLanes; ++lane) found[lane] = from[at[lane]];
  return FromMemory<F32x16>(found);
#endif
}

// The sixteen elements of these eight bytes; `scaled`: their block's levels times its absmax.
static SNUG_INLINE F32x16 Nf4Lanes(const uint8_t* codes, F32x16 scaled) {
  constexpr U32x16Value kShift = {4, 0, 12, 8, 20, 16, 28, 24, 4, 0, 12, 8, 20, 16, 28, 24};
  uint32_t a, b;  // The codes of eight elements each.
  memcpy(&a, codes, sizeof(a));
  memcpy(&b, codes + sizeof(a), sizeof(b));
  const U32x16Value pairs = {a, a, a, a, a, a, a, a, b, b, b, b, b, b, b, b};
  return Lookup(scaled, As<I32x16>(U32x16(pairs >> kShift & 15u)));
}
static SNUG_INLINE F32x16 Nf4Scaled(const Nf4Weight& w, int64_t block) {
  return Load(kNf4Levels.at, Whole{}) * Nf4Absmax(w, kDynamicMap, block);
}

template <typename Extent>
static SNUG_INLINE F32x16 Int8Lanes(const int8_t* codes, float absmax, Extent part) {
  I8x16 some{};
  memcpy(&some, codes, Count(part));
  return Convert<F32x16>(Widened(some)) * absmax * kInt8Inverse;
}

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_FROZEN_VALUES_H_
