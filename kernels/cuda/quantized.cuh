// Values of eight neighbours of a row to codes and back: what quantising kernels and those that
// read codes have in common. Sixteen threads find the range of a block by shuffles.
#ifndef KERNELS_CUDA_QUANTIZED_CUH_
#define KERNELS_CUDA_QUANTIZED_CUH_

#include <cstdint>

#include "kernels/cuda/code_packs.cuh"
#include "kernels/quantize.h"
#include "kernels/quantize_code.h"

namespace snug::kernels::cuda {

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

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_QUANTIZED_CUH_
