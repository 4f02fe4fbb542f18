// Random words for 64 neighbours at a time, 16 Philox blocks side by side, and which of them
// dropout drops (kernels/dropout.h has the rule).
#ifndef KERNELS_CPU_LOOPS_RANDOM_H_
#define KERNELS_CPU_LOOPS_RANDOM_H_

#include <cstdint>
#include <cstring>

#include "kernels/cpu/loops/vector.h"
#include "kernels/philox.h"

namespace snug::kernels::SNUG_ISA {

// word[w][k]: word w of block first + k.
struct Words {
  uint32_t word[4][kLanes];
};

struct WideProduct {
  uint32_t low[kLanes], high[kLanes];
};

static SNUG_INLINE WideProduct MultiplyWide(const uint32_t* x, uint32_t by) {
  WideProduct product;
  for (int64_t k = 0; k < kLanes; ++k) {
    const uint64_t wide = uint64_t{x[k]} * by;
    product.low[k] = static_cast<uint32_t>(wide);
    product.high[k] = static_cast<uint32_t>(wide >> 32);
  }
  return product;
}

// Philox() of kernels/philox.h for 16 blocks. `first` is a multiple of 16, so no carry leaves word
// 0.
static SNUG_INLINE Words RandomWords(const RandomSite& site, uint64_t first) {
  Words c;
  for (int64_t k = 0; k < kLanes; ++k) {
    c.word[0][k] = static_cast<uint32_t>(first) + static_cast<uint32_t>(k);
    c.word[1][k] = static_cast<uint32_t>(first >> 32) | (site.op << 8);
    c.word[2][k] = site.step;
    c.word[3][k] = site.micro_batch;
  }
  uint32_t k0 = static_cast<uint32_t>(site.seed), k1 = static_cast<uint32_t>(site.seed >> 32);
  for (int round = 0; round < philox::kRounds; ++round) {
    const WideProduct a = MultiplyWide(c.word[0], philox::kMultiplier0);
    const WideProduct b = MultiplyWide(c.word[2], philox::kMultiplier1);
    for (int64_t k = 0; k < kLanes; ++k) {
      c.word[0][k] = b.high[k] ^ c.word[1][k] ^ k0;
      c.word[1][k] = b.low[k];
      c.word[2][k] = a.high[k] ^ c.word[3][k] ^ k1;
      c.word[3][k] = a.low[k];
    }
    k0 += philox::kWeyl0;
    k1 += philox::kWeyl1;
  }
  return c;
}

// The random word / 2 below which an element is dropped.
static SNUG_INLINE int32_t ThresholdOf(double rate) {
  return static_cast<int32_t>(rate * 2147483648.0);
}

// All ones where the word drops its element.
static SNUG_INLINE I32x16 Dropped(const uint32_t* words, int32_t threshold) {
  U32x16 word;
  memcpy(&word, words, sizeof(word));
  return (reinterpret_cast<I32x16>(word >> 1) - threshold) >> 31;
}

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_RANDOM_H_
