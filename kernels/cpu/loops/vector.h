// Sixteen fp32 lanes, on every instruction set: GCC lowers one F32x16 to a zmm, two ymm or four xmm
// registers. Lane counts, reduction trees and the order of operations are fixed and no multiply-add
// is contracted, so that all instruction sets give the same bits.
//
// Files that include this are compiled once per instruction set (SNUG_ISA names it, see
// kernels/CMakeLists.txt). Everything here is inlined or internal: a function with external
// linkage, std:: templates included, could be merged by the linker with one compiled for a newer
// machine.
//
// Lanes are never compared: GCC 12 does that lane by lane on registers narrower than the vector.
// Masks (all ones or zero) come from sign bits.
#ifndef KERNELS_CPU_LOOPS_VECTOR_H_
#define KERNELS_CPU_LOOPS_VECTOR_H_

#include <cstdint>
#include <cstring>

#include "kernels/types.h"

#define SNUG_INLINE inline __attribute__((always_inline))
#define SNUG_LAMBDA __attribute__((always_inline))

namespace snug::kernels::SNUG_ISA {

using F32x16 = float __attribute__((vector_size(64)));
using I32x16 = int32_t __attribute__((vector_size(64)));
using U32x16 = uint32_t __attribute__((vector_size(64)));
using U16x16 = uint16_t __attribute__((vector_size(32)));
inline constexpr int64_t kLanes = 16;

// How much of a vector is there: all of it, or the first `count` lanes at a row's end.
struct Whole {};
struct Part {
  int64_t count;
};

// Less 0, not plus 0, which could not be left out: -0 + 0 is 0.
static SNUG_INLINE F32x16 Splat(float value) { return value - F32x16{}; }

static SNUG_INLINE F32x16 Select(I32x16 mask, F32x16 yes, F32x16 no) {
  return reinterpret_cast<F32x16>((reinterpret_cast<I32x16>(yes) & mask) |
                                  (reinterpret_cast<I32x16>(no) & ~mask));
}

static SNUG_INLINE F32x16 Load(const float* x, Whole) {
  F32x16 v;
  memcpy(&v, x, sizeof(v));
  return v;
}
static SNUG_INLINE F32x16 Load(const bf16* x, Whole) {
  U16x16 v;
  memcpy(&v, x, sizeof(v));
  return reinterpret_cast<F32x16>(__builtin_convertvector(v, U32x16) << 16);
}
static SNUG_INLINE F32x16 Load(const f16* x, Whole) {
  U16x16 v;
  memcpy(&v, x, sizeof(v));
  const U32x16 bits = __builtin_convertvector(v, U32x16);
  const U32x16 magnitude = bits & 0x7fffu;
  // As ToFloat of types.h: what is below 0x400 is subnormal, what is above 0x7bff not finite.
  const I32x16 subnormal = reinterpret_cast<I32x16>(magnitude - 0x400u) >> 31;
  const U32x16 beyond =
      reinterpret_cast<U32x16>(reinterpret_cast<I32x16>(0x7bffu - magnitude) >> 31);
  const U32x16 normal = (magnitude << 13) + (112u << 23) + (beyond & (112u << 23));
  const F32x16 small =
      __builtin_convertvector(reinterpret_cast<I32x16>(magnitude), F32x16) * 0x1p-24f;
  const U32x16 value =
      reinterpret_cast<U32x16>(Select(subnormal, small, reinterpret_cast<F32x16>(normal)));
  return reinterpret_cast<F32x16>(value | (bits & 0x8000u) << 16);
}
template <typename T>
static SNUG_INLINE F32x16 Load(const T* x, Part part) {
  T lanes[kLanes] = {};
  memcpy(lanes, x, part.count * sizeof(T));
  return Load(lanes, Whole{});
}
// Lanes that are not there become `fill`.
static SNUG_INLINE F32x16 FillBeyond(F32x16 v, Whole, float) { return v; }
static SNUG_INLINE F32x16 FillBeyond(F32x16 v, Part part, float fill) {
  for (int64_t lane = part.count; lane < kLanes; ++lane) v[lane] = fill;
  return v;
}
template <typename T, typename Extent>
static SNUG_INLINE F32x16 LoadOr(const T* x, Extent extent, float fill) {
  return FillBeyond(Load(x, extent), extent, fill);
}

// All ones where the sign bit is set.
static SNUG_INLINE I32x16 SignMask(F32x16 v) { return reinterpret_cast<I32x16>(v) >> 31; }
// The larger of each lane.
static SNUG_INLINE F32x16 MaxOf(F32x16 a, F32x16 b) { return Select(SignMask(a - b), b, a); }
static SNUG_INLINE float MaxLane(F32x16 v) {
  float max = v[0];
  for (int64_t lane = 1; lane < kLanes; ++lane) max = v[lane] > max ? v[lane] : max;
  return max;
}

static SNUG_INLINE void Store(float* y, F32x16 v, Whole) { memcpy(y, &v, sizeof(v)); }
// To nearest even, NaN to 0x7fc0, as ToBf16 of types.h.
static SNUG_INLINE void Store(bf16* y, F32x16 v, Whole) {
  const U32x16 bits = reinterpret_cast<U32x16>(v);
  const U32x16 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const U32x16 nan =
      reinterpret_cast<U32x16>(reinterpret_cast<I32x16>(0x7f800000u - (bits & 0x7fffffffu)) >> 31);
  const U16x16 half = __builtin_convertvector((rounded & ~nan) | (0x7fc0u & nan), U16x16);
  memcpy(y, &half, sizeof(half));
}
// As ToF16 of types.h.
static SNUG_INLINE void Store(f16* y, F32x16 v, Whole) {
  const U32x16 bits = reinterpret_cast<U32x16>(v), magnitude = bits & 0x7fffffffu;
  const auto below = [&](uint32_t limit) SNUG_LAMBDA {
    return reinterpret_cast<U32x16>(reinterpret_cast<I32x16>(magnitude - limit) >> 31);
  };
  const U32x16 subnormal = below(0x38800000u), finite = below(0x47800000u);
  const U32x16 number = below(0x7f800001u);
  const U32x16 steps =
      reinterpret_cast<U32x16>(reinterpret_cast<F32x16>(magnitude) + 0.5f) - 0x3f000000u;
  const U32x16 normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13;
  const U32x16 value = (steps & subnormal) | (normal & ~subnormal & finite) | (0x7c00u & ~finite) |
                       (0x7e00u & ~number);
  const U16x16 half = __builtin_convertvector(value | (bits >> 16 & 0x8000u), U16x16);
  memcpy(y, &half, sizeof(half));
}
template <typename T>
static SNUG_INLINE void Store(T* y, F32x16 v, Part part) {
  T lanes[kLanes];
  Store(lanes, v, Whole{});
  memcpy(y, lanes, part.count * sizeof(T));
}

// body(i, Whole or Part) for i = 0, 16, 32, ... below n.
template <typename Body>
static SNUG_INLINE void ForVectors(int64_t n, Body body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, Whole{});
  if (i < n) body(i, Part{n - i});
}

static SNUG_INLINE float SumLanes(F32x16 v) {
  float lanes[kLanes];
  Store(lanes, v, Whole{});
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

// Columns that one fp32 sum spans: 64 terms in each of 64 chains, so its error stays near one unit.
inline constexpr int64_t kSumBlock = 4096;

// Sum of term(i, Whole or Part) over all lanes for i = 0, 16, ... below n: four chains of vectors
// in fp32 within blocks of kSumBlock, the blocks in fp64. Lanes that are not there must be 0.
template <typename Term>
static SNUG_INLINE double Sum(int64_t n, Term term) {
  double sum = 0.0;
  for (int64_t block = 0; block < n; block += kSumBlock) {
    const int64_t end = n - block < kSumBlock ? n : block + kSumBlock;
    F32x16 a{}, b{}, c{}, d{};
    int64_t i = block;
    for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
      a += term(i, Whole{});
      b += term(i + kLanes, Whole{});
      c += term(i + 2 * kLanes, Whole{});
      d += term(i + 3 * kLanes, Whole{});
    }
    for (; i + kLanes <= end; i += kLanes) a += term(i, Whole{});
    if (i < end) b += term(i, Part{end - i});
    sum += static_cast<double>(SumLanes((a + b) + (c + d)));
  }
  return sum;
}

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_VECTOR_H_
