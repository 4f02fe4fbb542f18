// Sixteen rows of sixteen words, turned.
#ifndef KERNELS_CPU_LOOPS_TRANSPOSE_H_
#define KERNELS_CPU_LOOPS_TRANSPOSE_H_

#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {

#if defined(__AVX512F__)
// Lanes of `low` and `high` in which the blocks of kHalf x kHalf off the diagonal change places.
template <int kHalf>
static SNUG_INLINE void Exchange(F32x16& low, F32x16& high) {
  I32x16 first, second;
  for (int lane = 0; lane < kLanes; ++lane) {
    const bool upper = (lane & kHalf) != 0;
    first[lane] = upper ? kLanes + lane - kHalf : lane;
    second[lane] = upper ? kLanes + lane : lane + kHalf;
  }
  const F32x16 kept = low;
  low = __builtin_shuffle(kept, high, first);
  high = __builtin_shuffle(kept, high, second);
}

template <int kHalf>
static SNUG_INLINE void ExchangeAll(F32x16 (&rows)[kLanes]) {
#pragma GCC unroll 16
  for (int row = 0; row < kLanes; ++row) {
    if ((row & kHalf) == 0) Exchange<kHalf>(rows[row], rows[row + kHalf]);
  }
}

static SNUG_INLINE void Transpose(F32x16 (&rows)[kLanes]) {
  ExchangeAll<8>(rows);
  ExchangeAll<4>(rows);
  ExchangeAll<2>(rows);
  ExchangeAll<1>(rows);
}
#else
// Elsewhere GCC would take such shuffles apart lane by lane.
static inline void Transpose(F32x16 (&rows)[kLanes]) {
  float words[kLanes][kLanes];
  for (int row = 0; row < kLanes; ++row) {
    float lanes[kLanes];
    Store(lanes, rows[row], Whole{});
    for (int lane = 0; lane < kLanes; ++lane) words[lane][row] = lanes[lane];
  }
  for (int row = 0; row < kLanes; ++row) rows[row] = Load(words[row], Whole{});
}
#endif

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_TRANSPOSE_H_
