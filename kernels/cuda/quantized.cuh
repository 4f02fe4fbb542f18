// Codes of eight neighbours of a row, from registers and back: what quantising kernels and those
// that read codes have in common. Eight elements are the draws of one Philox block; sixteen threads
// side by side hold a block of 128, whose range they find by shuffles.
#ifndef KERNELS_CUDA_QUANTIZED_CUH_
#define KERNELS_CUDA_QUANTIZED_CUH_

#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/quantize.h"
#include "kernels/quantize_code.h"

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
    if (count > 0) *reinterpret_cast<Pack<uint8_t, kBytes>*>(to) = bytes;
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

// ---- ranges -------------------------------------------------------------------------------------

// Of the block that this thread and its fifteen neighbours hold; all of them call it together. The
// first of them writes it.
__device__ inline Range32 FindBlockRange(const Quantized& q, const EightAt& at,
                                         const Floats<kEight>& x) {
  const float infinity = FloatOfBits(kInfinityBits);
  float min = at.left() > 0 ? x.at[0] : infinity, max = at.left() > 0 ? x.at[0] : -infinity;
  float poison = 0.0f;
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    if (at.left() > 0) min = fminf(min, x.at[i]);
    if (at.left() > 0) max = fmaxf(max, x.at[i]);
    poison += x.at[i] - x.at[i];
  }
  const unsigned mates = 0xffffu << (threadIdx.x & kBlockThreads);
#pragma unroll
  for (int lane = kBlockThreads / 2; lane > 0; lane /= 2) {
    min = fminf(min, __shfl_xor_sync(mates, min, lane));
    max = fmaxf(max, __shfl_xor_sync(mates, max, lane));
    poison += __shfl_xor_sync(mates, poison, lane);
  }
  const Range16 range = BlockRangeOf(min, max, poison, LevelsOf(q.bits));
  if (at.c % kRangeBlock == 0) {
    static_cast<Range16*>(
        q.ranges)[at.row * ((at.C + kRangeBlock - 1) / kRangeBlock) + at.c / kRangeBlock] = range;
  }
  return Widened(range);
}

// Ranges that lie in memory: body(i, range) for each of eight elements.
template <typename Body>
__device__ inline void ForRanges(const Quantized& q, const EightAt& at, const Body& body) {
  if (q.kind == RangeKind::kBlocks) {
    const int64_t block = at.row * ((at.C + kRangeBlock - 1) / kRangeBlock) + at.c / kRangeBlock;
    const Range32 range = Widened(static_cast<const Range16*>(q.ranges)[block]);
#pragma unroll
    for (int i = 0; i < kEight; ++i) body(i, range);
    return;
  }
  const int64_t width = GroupColumns(q.grouping, at.C);
  const Range32* ranges = static_cast<const Range32*>(q.ranges) +
                          RowGroup(q.grouping, q.first_row + at.row) * (at.C / width);
  int64_t group = at.c / width, end = (group + 1) * width - at.c;  // Of it, from c on.
  Range32 range = at.left() > 0 ? ranges[group] : Range32{};
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    if (i == end && i < at.left()) {
      range = ranges[++group];
      end += width;
    }
    body(i, range);
  }
}

// ---- both ways ----------------------------------------------------------------------------------

// x (LoadEight's) to codes. All sixteen threads of a block of 128 call it together.
template <bool kWide>
__device__ inline void QuantizeEight(const Quantized& q, const Dither& dither, const EightAt& at,
                                     const Floats<kEight>& x) {
  Floats<kEight> u;
  if (dither.rounding == Rounding::kNearest) {
#pragma unroll
    for (int i = 0; i < kEight; ++i) u.at[i] = 0.5f;
  } else {
    const Random4 random =
        RandomBlock(dither.site, RandomBlockOf(q.first_row + at.row, at.C, at.c));
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      u.at[i] = UniformOfHalf(i % 2 == 0 ? random.word[i / 2] & 0xffffu : random.word[i / 2] >> 16);
    }
  }
  const float levels = LevelsOf(q.bits);
  uint32_t codes[kEight];
  if (q.kind == RangeKind::kBlocks) {
    const Range32 range = FindBlockRange(q, at, x);
    const float inverse = InverseStep(range.step);
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      Scale(x.at[i], range.low, inverse, u.at[i]);
      codes[i] = CodeOf(u.at[i], levels);
    }
  } else {
    ForRanges(q, at, [&](int i, Range32 range) {
      Scale(x.at[i], range.low, InverseStep(range.step), u.at[i]);
      codes[i] = CodeOf(u.at[i], levels);
    });
  }
  StoreCodes<kWide>(q, at, codes);
}

template <bool kWide>
__device__ inline Floats<kEight> DequantizeEight(const Quantized& q, const EightAt& at) {
  Floats<kEight> x = LoadCodes<kWide>(q, at);
  ForRanges(q, at, [&](int i, Range32 range) { Reconstruct(x.at[i], range.low, range.step); });
  return x;
}

// Whether codes may be moved eight at a time.
inline bool DividesCodes(const Quantized& q, int64_t C) {
  const int64_t bytes = q.bits == CodeBits::k8 ? 8 : 4;
  return C % kEight == 0 && q.codes_stride % bytes == 0 &&
         reinterpret_cast<uintptr_t>(q.codes) % static_cast<uintptr_t>(bytes) == 0;
}

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_QUANTIZED_CUH_
