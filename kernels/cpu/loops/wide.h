// Sixteen lanes as registers hold them. With AVX-512 a vector of GCC's is one register. GCC 12
// keeps a vector that is wider than a register in memory, and moves it there and back between any
// two operations: so with AVX2 sixteen lanes are two vectors of eight, and everything is done to
// both. (Baseline SSE2 leaves it to GCC.)
//
// Both are written alike: arithmetic and shifts by lane, with a number for all lanes, As<> for the
// same bits as another type, Convert<> for the same numbers, FromMemory and ToMemory.
#ifndef KERNELS_CPU_LOOPS_WIDE_H_
#define KERNELS_CPU_LOOPS_WIDE_H_

#include <cstdint>
#include <cstring>

#define SNUG_INLINE inline __attribute__((always_inline))
#define SNUG_LAMBDA __attribute__((always_inline))

#if defined(__AVX2__) && !defined(__AVX512F__)
#define SNUG_HALVES 1
#include <immintrin.h>
#endif

namespace snug::kernels::SNUG_ISA {

using U16x16 = uint16_t __attribute__((vector_size(32)));
using U16x32 = uint16_t __attribute__((vector_size(64)));
using U8x16 = uint8_t __attribute__((vector_size(16)));
using I8x16 = int8_t __attribute__((vector_size(16)));
using F32x8 = float __attribute__((vector_size(32)));
using F32x4 = float __attribute__((vector_size(16)));

// As GCC has them, for constants with a value for each lane.
using F32x16Value = float __attribute__((vector_size(64)));
using I32x16Value = int32_t __attribute__((vector_size(64)));
using U32x16Value = uint32_t __attribute__((vector_size(64)));
using U64x8Value = uint64_t __attribute__((vector_size(64)));

#ifdef SNUG_HALVES

template <typename T>
struct Wide {
  typedef T Half __attribute__((vector_size(32)));
  typedef T Value __attribute__((vector_size(64)));

  Wide() = default;  // Wide{} is 0.
  SNUG_INLINE Wide(Half lower, Half upper) : low(lower), high(upper) {}
  SNUG_INLINE Wide(Value v) { memcpy(this, &v, sizeof v); }
  SNUG_INLINE T operator[](int64_t lane) const {
    constexpr int64_t kHalf = sizeof(Half) / sizeof(T);
    return lane < kHalf ? low[lane] : high[lane - kHalf];
  }

#define SNUG_BY_LANE(op)                                                                 \
  friend SNUG_INLINE Wide operator op(Wide a, Wide b) {                                  \
    return {a.low op b.low, a.high op b.high};                                           \
  }                                                                                      \
  friend SNUG_INLINE Wide operator op(Wide a, T b) { return {a.low op b, a.high op b}; } \
  friend SNUG_INLINE Wide operator op(T a, Wide b) { return {a op b.low, a op b.high}; } \
  SNUG_INLINE Wide& operator op##=(Wide b) { return *this = *this op b; }                \
  SNUG_INLINE Wide& operator op##=(T b) { return *this = *this op b; }
  SNUG_BY_LANE(+)
  SNUG_BY_LANE(-)
  SNUG_BY_LANE(*)
  SNUG_BY_LANE(/)
  SNUG_BY_LANE(&)
  SNUG_BY_LANE(|)
  SNUG_BY_LANE(^)
  SNUG_BY_LANE(<<)
  SNUG_BY_LANE(>>)
#undef SNUG_BY_LANE
  friend SNUG_INLINE Wide operator-(Wide a) { return {-a.low, -a.high}; }
  friend SNUG_INLINE Wide operator~(Wide a) { return {~a.low, ~a.high}; }

  Half low, high;
};

using F32x16 = Wide<float>;
using I32x16 = Wide<int32_t>;
using U32x16 = Wide<uint32_t>;
using U64x8 = Wide<uint64_t>;

static SNUG_INLINE I32x16 operator>(F32x16 a, F32x16 b) { return {a.low > b.low, a.high > b.high}; }

template <typename To, typename From>
static SNUG_INLINE To As(Wide<From> v) {
  using Half = typename To::Half;
  return {reinterpret_cast<Half>(v.low), reinterpret_cast<Half>(v.high)};
}
template <typename To, typename From>
static SNUG_INLINE To Convert(Wide<From> v) {
  using Half = typename To::Half;
  return {__builtin_convertvector(v.low, Half), __builtin_convertvector(v.high, Half)};
}
template <typename V>
static SNUG_INLINE V FromMemory(const void* x) {
  V v;
  memcpy(&v.low, x, sizeof v.low);
  memcpy(&v.high, static_cast<const char*>(x) + sizeof v.low, sizeof v.high);
  return v;
}
template <typename T>
static SNUG_INLINE void ToMemory(void* y, Wide<T> v) {
  memcpy(y, &v.low, sizeof v.low);
  memcpy(static_cast<char*>(y) + sizeof v.low, &v.high, sizeof v.high);
}
static SNUG_INLINE F32x16 OfHalves(F32x8 lower, F32x8 upper) { return {lower, upper}; }
static SNUG_INLINE F32x8 LowerHalf(F32x16 v) { return v.low; }
static SNUG_INLINE F32x8 UpperHalf(F32x16 v) { return v.high; }

#else

using F32x16 = F32x16Value;
using I32x16 = I32x16Value;
using U32x16 = U32x16Value;
using U64x8 = U64x8Value;

template <typename To, typename From>
static SNUG_INLINE To As(From v) {
  return reinterpret_cast<To>(v);
}
template <typename To, typename From>
static SNUG_INLINE To Convert(From v) {
  return __builtin_convertvector(v, To);
}
template <typename V>
static SNUG_INLINE V FromMemory(const void* x) {
  V v;
  memcpy(&v, x, sizeof v);
  return v;
}
template <typename V>
static SNUG_INLINE void ToMemory(void* y, V v) {
  memcpy(y, &v, sizeof v);
}
static SNUG_INLINE F32x16 OfHalves(F32x8 lower, F32x8 upper) {
  return __builtin_shufflevector(lower, upper, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
                                 15);
}
static SNUG_INLINE F32x8 LowerHalf(F32x16 v) {
  return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
}
static SNUG_INLINE F32x8 UpperHalf(F32x16 v) {
  return __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
}

#endif

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_WIDE_H_
