// Eight neighbouring elements a thread, so that their codes (kernels/codes.h) are whole bytes:
// moved 16 bytes at a time where rows allow it, else, and at the end of a row, one by one.
#ifndef KERNELS_CUDA_EIGHTS_CUH_
#define KERNELS_CUDA_EIGHTS_CUH_

#include <cstdint>
#include <initializer_list>

#include "kernels/codes.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"

namespace snug::kernels::cuda {

inline constexpr int kEight = 8;
using Eight = Floats<kEight>;

// Elements c .. c + 7 of a row of C.
struct Place {
  int64_t row, c, C;
  __device__ bool Holds(int i) const { return c + i < C; }
};

// What lies beyond the row is 0.
template <typename T, bool kAligned>
__device__ inline Eight LoadEight(const void* x, int64_t stride, const Place& at) {
  const T* from = static_cast<const T*>(x) + at.row * stride + at.c;
  if (kAligned && at.Holds(kEight - 1)) return Load<kEight>(from);
  Eight values;
#pragma unroll
  for (int i = 0; i < kEight; ++i) values.at[i] = at.Holds(i) ? Widen(from[i]) : 0.0f;
  return values;
}
template <typename T, bool kAligned>
__device__ inline void StoreEight(void* y, int64_t stride, const Place& at, const Eight& values) {
  T* to = static_cast<T*>(y) + at.row * stride + at.c;
  if (kAligned && at.Holds(kEight - 1)) return Store(to, values);
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    if (at.Holds(i)) Round(values.at[i], to[i]);
  }
}

// Whether two bytes of codes may move as one.
__device__ inline bool TogetherAt(const uint8_t* codes, const Place& at) {
  return at.Holds(kEight - 1) && (reinterpret_cast<uintptr_t>(codes) & 1) == 0;
}

// The codes of eight elements, 8 * bits of them, to and from a row of codes; beyond C they are 0.
template <int kBits>
__device__ inline void StoreCodes(uint8_t* codes, int64_t stride, const Place& at, unsigned word) {
  uint8_t* to = codes + at.row * stride + at.c * kBits / 8;
  if (kBits == 2 && TogetherAt(to, at)) {
    *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(word);
    return;
  }
  if (!at.Holds(kEight - 1)) word &= (1u << static_cast<int>(at.C - at.c) * kBits) - 1;
#pragma unroll
  for (int byte = 0; byte < kBits; ++byte) {
    if (at.Holds(byte * 8 / kBits)) to[byte] = static_cast<uint8_t>(word >> 8 * byte);
  }
}
template <int kBits>
__device__ inline unsigned LoadCodes(const uint8_t* codes, int64_t stride, const Place& at) {
  const uint8_t* from = codes + at.row * stride + at.c * kBits / 8;
  if (kBits == 2 && TogetherAt(from, at)) return *reinterpret_cast<const uint16_t*>(from);
  unsigned word = 0;
#pragma unroll
  for (int byte = 0; byte < kBits; ++byte) {
    if (at.Holds(byte * 8 / kBits)) word |= unsigned{from[byte]} << 8 * byte;
  }
  return word;
}

__device__ inline unsigned TwoBitCodes(const Eight& x, const TwoBit& p) {
  unsigned word = 0;
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    const unsigned code = (x.at[i] > p.threshold[0] ? 1u : 0u) +
                          (x.at[i] > p.threshold[1] ? 1u : 0u) +
                          (x.at[i] > p.threshold[2] ? 1u : 0u);
    word |= code << 2 * i;
  }
  return word;
}

// One bit each: above 0. The bit has a name because GCC 12, in a template and with checks of shifts
// and bounds, indexes wrongly in a shift of an unnamed condition.
__device__ inline unsigned PositiveBits(const Eight& x) {
  unsigned word = 0;
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    const unsigned bit = x.at[i] > 0.0f ? 1u : 0u;
    word |= bit << i;
  }
  return word;
}

__device__ inline float SlopeOf(unsigned code, const float* slope) {
  const float low = (code & 1) != 0 ? slope[1] : slope[0];
  const float high = (code & 1) != 0 ? slope[3] : slope[2];
  return (code & 2) != 0 ? high : low;
}

// body(T{}, Constant<kAligned>{}, grid of packs of eight).
template <typename Body>
inline Error ByEights(DType dtype, int64_t N, int64_t C, std::initializer_list<Operand> operands,
                      const Body& body) {
  bool aligned = true;
  for (const Operand& x : operands) aligned = aligned && Divides(x, kEight, kEight);
  const ElementGrid grid = ElementGridOf(N, Ceil(C, kEight));
  return ByType(dtype, [&](auto t) {
    if (aligned) return body(t, Constant<1>{}, grid);
    return body(t, Constant<0>{}, grid);
  });
}

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_EIGHTS_CUH_
