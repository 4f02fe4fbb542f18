// Random words for 64 neighbours at a time, from 16 Philox blocks, and which of them dropout drops
// (kernels/dropout.h has the rule).
#ifndef KERNELS_CPU_LOOPS_RANDOM_H_
#define KERNELS_CPU_LOOPS_RANDOM_H_

#include <cstdint>

#include "kernels/cpu/loops/vector.h"
#include "kernels/philox.h"

namespace snug::kernels::SNUG_ISA {

// Eight blocks side by side: a word of each in the lower half of 64 bits, whatever is in the upper.
struct Eight {
  U64x8 word[4];
};

// Of the lower halves.
static SNUG_INLINE U64x8 MultiplyWide(U64x8 x, uint32_t by) {
#ifdef __AVX512F__
  return As<U64x8>(
      _mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(x), _mm512_set1_epi64(by)));
#else
  return (x & uint64_t{0xffffffff}) * by;
#endif
}

// Philox() of kernels/philox.h for the blocks first, first + step, ... first + 7 step.
static SNUG_INLINE Eight RandomBlocks(const RandomSite& site, uint64_t first, uint64_t step) {
  constexpr U64x8Value kNumber = {0, 1, 2, 3, 4, 5, 6, 7};
  const U64x8 block = U64x8(kNumber) * step + first;
  Eight c = {{block, block >> 32 | (uint64_t{site.op} << 8), U64x8{} + site.step,
              U64x8{} + site.micro_batch}};
  uint32_t k0 = static_cast<uint32_t>(site.seed), k1 = static_cast<uint32_t>(site.seed >> 32);
  for (int round = 0; round < philox::kRounds; ++round) {
    const U64x8 a = MultiplyWide(c.word[0], philox::kMultiplier0);
    const U64x8 b = MultiplyWide(c.word[2], philox::kMultiplier1);
    c = {{b >> 32 ^ c.word[1] ^ k0, b, a >> 32 ^ c.word[3] ^ k1, a}};
    k0 += philox::kWeyl0;
    k1 += philox::kWeyl1;
  }
  return c;
}

// Lower half from `low`, upper half from `high`'s lower half.
static SNUG_INLINE U64x8 Joined(U64x8 low, U64x8 high) { return (low & 0xffffffffu) | high << 32; }

// word[w][k]: word w of block first + k.
struct Words {
  U32x16 word[4];
};
static SNUG_INLINE Words RandomWords(const RandomSite& site, uint64_t first) {
  const Eight even = RandomBlocks(site, first, 2), odd = RandomBlocks(site, first + 1, 2);
  Words words;
  for (int w = 0; w < 4; ++w) {
    words.word[w] = As<U32x16>(Joined(even.word[w], odd.word[w]));
  }
  return words;
}

// a0 b0 a1 b1 and so on: of the first half of each, and of the second.
struct Mixed {
  U64x8 first, second;
};
#ifdef SNUG_HALVES
static SNUG_INLINE U64x8 MixedHalf(U64x8::Half a, U64x8::Half b) {
  using Order = U64x8::Half;
  return {__builtin_shuffle(a, b, Order{0, 4, 1, 5}), __builtin_shuffle(a, b, Order{2, 6, 3, 7})};
}
static SNUG_INLINE Mixed Mix(U64x8 a, U64x8 b) {
  return {MixedHalf(a.low, b.low), MixedHalf(a.high, b.high)};
}
#else
static SNUG_INLINE Mixed Mix(U64x8 a, U64x8 b) {
  return {__builtin_shuffle(a, b, U64x8{0, 8, 1, 9, 2, 10, 3, 11}),
          __builtin_shuffle(a, b, U64x8{4, 12, 5, 13, 6, 14, 7, 15})};
}
#endif

// The four words of block `first`, then those of the next, and so on, for sixteen blocks.
struct WordRun {
  U32x16 of[4];  // Of four blocks each.
};
static SNUG_INLINE WordRun RandomRun(const RandomSite& site, uint64_t first) {
  WordRun run;
  for (int half = 0; half < 2; ++half) {
    const Eight c = RandomBlocks(site, first + 8 * static_cast<uint64_t>(half), 1);
    const U64x8 front = Joined(c.word[0], c.word[1]), back = Joined(c.word[2], c.word[3]);
    const Mixed words = Mix(front, back);
    run.of[2 * half] = As<U32x16>(words.first);
    run.of[2 * half + 1] = As<U32x16>(words.second);
  }
  return run;
}

// The random word / 2 below which an element is dropped.
static SNUG_INLINE int32_t ThresholdOf(double rate) {
  return static_cast<int32_t>(rate * 2147483648.0);
}

// All ones where the word drops its element.
static SNUG_INLINE I32x16 Dropped(U32x16 word, int32_t threshold) {
  return (As<I32x16>(word >> 1) - threshold) >> 31;
}

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_RANDOM_H_
