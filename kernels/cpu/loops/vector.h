// Rows of any length as vectors of sixteen lanes (lanes.h), and sums over them.
#ifndef KERNELS_CPU_LOOPS_VECTOR_H_
#define KERNELS_CPU_LOOPS_VECTOR_H_

#include <cstdint>
#include <cstring>

#include "kernels/cpu/loops/lanes.h"

namespace snug::kernels::SNUG_ISA {

// How much of a vector is there: all of it (Whole), or the first `count` lanes at a row's end.
struct Part {
  int64_t count;
};
static SNUG_INLINE int64_t Count(Whole) { return kLanes; }
static SNUG_INLINE int64_t Count(Part part) { return part.count; }

template <typename T>
static SNUG_INLINE F32x16 Load(const T* x, Part part) {
  T lanes[kLanes] = {};
  memcpy(lanes, x, part.count * sizeof(T));
  return Load(lanes, Whole{});
}
// Lanes that are not there become `fill`.
static SNUG_INLINE F32x16 FillBeyond(F32x16 v, Whole, float) { return v; }
static SNUG_INLINE F32x16 FillBeyond(F32x16 v, Part part, float fill) {
  float lanes[kLanes];
  Store(lanes, v, Whole{});
  for (int64_t lane = part.count; lane < kLanes; ++lane) lanes[lane] = fill;
  return Load(lanes, Whole{});
}
template <typename T, typename Extent>
static SNUG_INLINE F32x16 LoadOr(const T* x, Extent extent, float fill) {
  return FillBeyond(Load(x, extent), extent, fill);
}

// The first two steps of a tree over lanes: lane i with i + 8, then with i + 4.
template <typename Op>
static SNUG_INLINE F32x4 InFours(F32x16 v, Op op) {
  const F32x8 eight = op(LowerHalf(v), UpperHalf(v));
  return op(__builtin_shufflevector(eight, eight, 0, 1, 2, 3),
            __builtin_shufflevector(eight, eight, 4, 5, 6, 7));
}

// All ones where the sign bit is set.
static SNUG_INLINE I32x16 SignMask(F32x16 v) { return As<I32x16>(v) >> 31; }
// The larger of each lane.
static SNUG_INLINE F32x16 MaxOf(F32x16 a, F32x16 b) { return Select(SignMask(a - b), b, a); }
static SNUG_INLINE float MaxLane(F32x16 v) {
  const F32x4 four = InFours(v, [](auto a, auto b) SNUG_LAMBDA { return a > b ? a : b; });
  const float even = four[0] > four[2] ? four[0] : four[2];
  const float odd = four[1] > four[3] ? four[1] : four[3];
  return even > odd ? even : odd;
}

template <typename T>
static SNUG_INLINE void Store(T* y, F32x16 v, Part part) {
  T lanes[kLanes];
  Store(lanes, v, Whole{});
  memcpy(y, lanes, part.count * sizeof(T));
}

// As memory of type T would hold it.
template <typename T>
static SNUG_INLINE F32x16 Rounded(F32x16 v) {
  T lanes[kLanes];
  Store(lanes, v, Whole{});
  return Load(lanes, Whole{});
}

// body(i, Whole or Part) for i = 0, 16, 32, ... below n.
template <typename Body>
static SNUG_INLINE void ForVectors(int64_t n, Body body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, Whole{});
  if (i < n) body(i, Part{n - i});
}

static SNUG_INLINE float SumLanes(F32x16 v) {
  const F32x4 four = InFours(v, [](auto a, auto b) SNUG_LAMBDA { return a + b; });
  return (four[0] + four[2]) + (four[1] + four[3]);
}

// Columns that one fp32 sum spans: 64 terms in each of 64 chains, so its error stays near one unit.
inline constexpr int64_t kSumBlock = 4096;

// sums[k] = the sum of term(i, Whole or Part).of[k] over all lanes for i = 0, 16, ... below n: four
// chains of vectors in fp32 within blocks of kSumBlock, the blocks in fp64. Lanes that are not
// there must be 0.
template <int kSums>
struct Terms {
  F32x16 of[kSums];
};
template <int kSums, typename Term>
static SNUG_INLINE void SumEach(int64_t n, Term term, double (&sums)[kSums]) {
  for (double& sum : sums) sum = 0.0;
  for (int64_t block = 0; block < n; block += kSumBlock) {
    const int64_t end = n - block < kSumBlock ? n : block + kSumBlock;
    F32x16 chains[kSums][4] = {};
    const auto add = [&](int chain, const Terms<kSums>& terms) SNUG_LAMBDA {
      for (int k = 0; k < kSums; ++k) chains[k][chain] += terms.of[k];
    };
    int64_t i = block;
    for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
#pragma GCC unroll 4
      for (int chain = 0; chain < 4; ++chain) add(chain, term(i + chain * kLanes, Whole{}));
    }
    for (; i + kLanes <= end; i += kLanes) add(0, term(i, Whole{}));
    if (i < end) add(1, term(i, Part{end - i}));
    for (int k = 0; k < kSums; ++k) {
      const F32x16(&c)[4] = chains[k];
      sums[k] += static_cast<double>(SumLanes((c[0] + c[1]) + (c[2] + c[3])));
    }
  }
}
// Of one term that is a vector.
template <typename Term>
static SNUG_INLINE double Sum(int64_t n, Term term) {
  double sums[1];
  SumEach(
      n, [&](int64_t i, auto part) SNUG_LAMBDA { return Terms<1>{{term(i, part)}}; }, sums);
  return sums[0];
}

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_VECTOR_H_
