// Sixteen rows of sixteen words, turned.
#ifndef KERNELS_CPU_LOOPS_TRANSPOSE_H_
#define KERNELS_CPU_LOOPS_TRANSPOSE_H_

#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {

#if defined(__AVX512F__) || defined(SNUG_HALVES)
// Lanes of `low` and `high` in which the blocks of kHalf x kHalf off the diagonal change places.
template <int kHalf, typename Vector, typename Order>
static SNUG_INLINE void Exchange(Vector& low, Vector& high) {
  constexpr int kCount = sizeof(Vector) / sizeof(float);
  Order first, second;
  for (int lane = 0; lane < kCount; ++lane) {
    const bool upper = (lane & kHalf) != 0;
    first[lane] = upper ? kCount + lane - kHalf : lane;
    second[lane] = upper ? kCount + lane : lane + kHalf;
  }
  const Vector kept = low;
  low = __builtin_shuffle(kept, high, first);
  high = __builtin_shuffle(kept, high, second);
}

template <int kHalf, typename Order, typename Vector, int kCount>
static SNUG_INLINE void ExchangeAll(Vector (&rows)[kCount]) {
#pragma GCC unroll 16
  for (int row = 0; row < kCount; ++row) {
    if ((row & kHalf) == 0) Exchange<kHalf, Vector, Order>(rows[row], rows[row + kHalf]);
  }
  if constexpr (kHalf > 1) ExchangeAll<kHalf / 2, Order>(rows);
}
#endif

#if defined(__AVX512F__)
static SNUG_INLINE void Transpose(F32x16 (&rows)[kLanes]) { ExchangeAll<8, I32x16>(rows); }
#elif defined(SNUG_HALVES)
// Four squares of eight, of which those off the diagonal change places.
static SNUG_INLINE void Transpose(F32x16 (&rows)[kLanes]) {
  constexpr int kSide = 8;
  F32x8 squares[2][2][kSide];
#pragma GCC unroll 16
  for (int row = 0; row < kLanes; ++row) {
    squares[row / kSide][0][row % kSide] = rows[row].low;
    squares[row / kSide][1][row % kSide] = rows[row].high;
  }
  for (auto& line : squares)
    for (auto& square : line) ExchangeAll<4, I32x16::Half>(square);
#pragma GCC unroll 16
  for (int row = 0; row < kLanes; ++row)
    rows[row] = {squares[0][row / kSide][row % kSide], squares[1][row / kSide][row % kSide]};
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
