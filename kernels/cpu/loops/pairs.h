// Functions of elements, one by one, over rows; of bf16 whole registers at a time.
#ifndef KERNELS_CPU_LOOPS_PAIRS_H_
#define KERNELS_CPU_LOOPS_PAIRS_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/loops/output.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {

// Thirty-two neighbours. As bf16 they are sixteen words of 32 bits, of which either half is a
// number once the other one is cleared: no lane moves.
struct Pair {
  F32x16 even, odd;
};
static SNUG_INLINE Pair LoadPair(const bf16* x) {
  const U32x16 words = FromMemory<U32x16>(x);
  return {As<F32x16>(words << 16), As<F32x16>(words & 0xffff0000u)};
}
// As Store of lanes.h rounds.
static SNUG_INLINE void StorePair(bf16* y, Pair v) {
#ifdef __AVX512BF16__
  if (__builtin_expect((RoundsOtherwise(v.even) | RoundsOtherwise(v.odd)) == 0, true)) {
    constexpr U16x32 kOrder = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                               8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const U16x32 rounded = reinterpret_cast<U16x32>(
        _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(v.odd), reinterpret_cast<__m512>(v.even)));
    const U16x32 words = __builtin_shuffle(rounded, kOrder);
    memcpy(y, &words, sizeof(words));
    return;
  }
#endif
  ToMemory(y, RoundedToBf16(v.even) >> 16 | RoundedToBf16(v.odd));
}

template <typename F, typename... Pairs>
static SNUG_INLINE Pair OfPairs(F f, Pairs... v) {
  return {f(v.even...), f(v.odd...)};
}

// y[c] = f(x[c]...) for c below n, as `out` puts it. `y` may be any of `x`.
template <typename T, typename F, typename... X>
static SNUG_INLINE void Each(const Output& out, int64_t n, T* y, F f, const X*... x) {
  int64_t c = 0;
  if constexpr (std::is_same_v<T, bf16>) {
    for (; c + 2 * kLanes <= n; c += 2 * kLanes) {
      const Pair v = OfPairs(f, LoadPair(x + c)...);
      out.Put<2 * kLanes>(y + c, [&](bf16* to) SNUG_LAMBDA { StorePair(to, v); });
    }
  }
  ForVectors(n - c, [&](int64_t i, auto part)
                        SNUG_LAMBDA { out.Put(y + c + i, f(Load(x + c + i, part)...), part); });
}

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_PAIRS_H_
