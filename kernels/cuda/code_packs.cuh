// Eight neighbours of a row in registers, and their codes in memory. Eight elements are the draws
// of one Philox block; sixteen threads side by side hold a block of 128.
#ifndef KERNELS_CUDA_CODE_PACKS_CUH_
#define KERNELS_CUDA_CODE_PACKS_CUH_

#include <cstdint>

#include "kernels/cuda/pack.cuh"
#include "kernels/quantize.h"

namespace snug::kernels::cuda {

inline constexpr int kEight = 8, kBlockThreads = static_cast<int>(kRangeBlock) / kEight;

// Packs of eight of a row, in whole blocks of 128: some threads of the last one have no element.
inline int64_t EightsOf(int64_t C) { return RangeBlocks(C) * kBlockThreads; }

// Columns [c, c + 8) of row `row` (of this call) of a tensor of C columns.
struct EightAt {
  int64_t row, C, c;
  __device__ int64_t left() const { return C - c; }  // <= 0: no element
};

// What is behind the row's end becomes the first element; without any, 0.
template <bool kWide, typename T>
__device__ inline Floats<kEight> LoadEight(const T* row, const EightAt& at) {
  Floats<kEight> x = {};
  if constexpr (kWide) {
    if (at.left() > 0) x = Load<kEight>(row + at.c);
  } else {
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      x.at[i] = i < at.left() ? Widen(row[at.c + i]) : x.at[0];
    }
  }
  return x;
}
template <bool kWide, typename T>
__device__ inline void StoreEight(T* row, const EightAt& at, const Floats<kEight>& x) {
  if constexpr (kWide) {
    if (at.left() > 0) Store(row + at.c, x);
  } else {
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      if (i < at.left()) Round(x.at[i], row[at.c + i]);
    }
  }
}

// ---- codes in memory ----------------------------------------------------------------------------

template <bool kWide, int kBytes>
__device__ inline void StoreBytes(uint8_t* to, int64_t count, const Pack<uint8_t, kBytes>& bytes) {
  if constexpr (kWide) {
    if (count > 0) StorePack(to, bytes);
  } else {
#pragma unroll
    for (int i = 0; i < kBytes; ++i) {
      if (i < count) to[i] = bytes.at[i];
    }
  }
}
template <bool kWide, int kBytes>
__device__ inline Pack<uint8_t, kBytes> LoadBytes(const uint8_t* from, int64_t count) {
  Pack<uint8_t, kBytes> bytes = {};
  if constexpr (kWide) {
    if (count > 0) bytes = *reinterpret_cast<const Pack<uint8_t, kBytes>*>(from);
  } else {
#pragma unroll
    for (int i = 0; i < kBytes; ++i) {
      if (i < count) bytes.at[i] = from[i];
    }
  }
  return bytes;
}

template <bool kWide>
__device__ inline void StoreCodes(const Quantized& q, const EightAt& at,
                                  const uint32_t (&codes)[kEight]) {
  uint8_t* row = static_cast<uint8_t*>(q.codes) + at.row * q.codes_stride;
  if (q.bits == CodeBits::k8) {
    Pack<uint8_t, 8> bytes;
#pragma unroll
    for (int i = 0; i < 8; ++i) bytes.at[i] = static_cast<uint8_t>(codes[i]);
    return StoreBytes<kWide>(row + at.c, at.left(), bytes);
  }
  Pack<uint8_t, 4> bytes;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t high = 2 * i + 1 < at.left() ? codes[2 * i + 1] : 0u;
    bytes.at[i] = static_cast<uint8_t>(codes[2 * i] | high << 4);
  }
  StoreBytes<kWide>(row + at.c / 2, (at.left() + 1) / 2, bytes);
}
template <bool kWide>
__device__ inline Floats<kEight> LoadCodes(const Quantized& q, const EightAt& at) {
  const uint8_t* row = static_cast<const uint8_t*>(q.codes) + at.row * q.codes_stride;
  Floats<kEight> codes;
  if (q.bits == CodeBits::k8) {
    const auto bytes = LoadBytes<kWide, 8>(row + at.c, at.left());
#pragma unroll
    for (int i = 0; i < 8; ++i) codes.at[i] = static_cast<float>(bytes.at[i]);
    return codes;
  }
  const auto bytes = LoadBytes<kWide, 4>(row + at.c / 2, (at.left() + 1) / 2);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    codes.at[2 * i] = static_cast<float>(bytes.at[i] & 0xf);
    codes.at[2 * i + 1] = static_cast<float>(bytes.at[i] >> 4);
  }
  return codes;
}

// Whether codes may be moved eight at a time.
inline bool DividesCodes(const Quantized& q, int64_t C) {
  const int64_t bytes = q.bits == CodeBits::k8 ? 8 : 4;
  return C % kEight == 0 && q.codes_stride % bytes == 0 &&
         reinterpret_cast<uintptr_t>(q.codes) % static_cast<uintptr_t>(bytes) == 0;
}

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_CODE_PACKS_CUH_
