// Values of a block of 128 neighbours of a row to codes and back, and the ranges that this takes:
// what quantising ops and the ops that read codes have in common.
#ifndef KERNELS_CPU_LOOPS_QUANTIZED_H_
#define KERNELS_CPU_LOOPS_QUANTIZED_H_

#include <cstdint>
#include <cstring>

#include "kernels/cpu/loops/code_blocks.h"
#include "kernels/cpu/loops/random.h"
#include "kernels/cpu/loops/vector.h"
#include "kernels/quantize.h"
#include "kernels/quantize_code.h"

namespace snug::kernels::SNUG_ISA {

using U8x16 = uint8_t __attribute__((vector_size(16)));

// ---- ranges -------------------------------------------------------------------------------------

struct MinMax {
  F32x16 min, max, poison;
  static SNUG_INLINE MinMax From(float x) { return {Splat(x), Splat(x), Splat(x) - x}; }
  SNUG_INLINE void Add(F32x16 v) {
    min = Select(SignMask(v - min), v, min);
    max = MaxOf(max, v);
    poison += v - v;
  }
  // Minimum, maximum, and whether all was finite.
  SNUG_INLINE void Reduce(float* result) const {
    result[0] = -MaxLane(-min);
    result[1] = MaxLane(max);
    result[2] = SumLanes(poison);
  }
};

static SNUG_INLINE Range16 BlockRange(const Floats128& x, float levels) {
  MinMax all = MinMax::From(x.at[0]);
  ForBlockVectors([&](int64_t c) SNUG_LAMBDA { all.Add(Load(x.at + c, Whole{})); });
  float result[3];
  all.Reduce(result);
  return BlockRangeOf(result[0], result[1], result[2], levels);
}

// Step and low of each element of a block.
struct ElementRanges {
  Floats128 step, low;
};
static SNUG_INLINE void Fill(ElementRanges& to, int64_t begin, int64_t end, Range32 range) {
  for (int64_t c = begin; c < end; ++c) {
    to.step.at[c] = range.step;
    to.low.at[c] = range.low;
  }
}
static SNUG_INLINE void LoadRanges(const Quantized& q, const BlockAt& at, ElementRanges& to) {
  if (q.kind == RangeKind::kBlocks) {
    const auto* ranges = static_cast<const Range16*>(q.ranges);
    Fill(to, 0, kRangeBlock, Widened(ranges[at.row * RangeBlocks(at.C) + at.block]));
    return;
  }
  const int64_t width = GroupColumns(q.grouping, at.C);
  const Range32* ranges = static_cast<const Range32*>(q.ranges) +
                          RowGroup(q.grouping, q.first_row + at.row) * (at.C / width);
  const int64_t count = at.count();
  for (int64_t c = 0; c < count;) {
    const int64_t group = (at.begin() + c) / width, end = (group + 1) * width - at.begin();
    const int64_t stop = end < count ? end : kRangeBlock;  // The last one's, behind the row's end.
    Fill(to, c, stop < kRangeBlock ? stop : kRangeBlock, ranges[group]);
    c = stop;
  }
}

// ---- both ways ----------------------------------------------------------------------------------

// The random halves of a block's elements; to nearest, 1/2 for all.
static SNUG_INLINE void Draw(const Dither& dither, const Quantized& q, const BlockAt& at,
                             uint16_t* halves) {
  if (dither.rounding == Rounding::kNearest) {
    for (int64_t c = 0; c < kRangeBlock; ++c) halves[c] = 0x8000;
    return;
  }
  const Words words =
      RandomWords(dither.site, RandomBlockOf(q.first_row + at.row, at.C, at.begin()));
  for (int64_t k = 0; k < kLanes; ++k) {
    for (int64_t w = 0; w < 4; ++w) {
      halves[8 * k + 2 * w] = static_cast<uint16_t>(words.word[w][k]);
      halves[8 * k + 2 * w + 1] = static_cast<uint16_t>(words.word[w][k] >> 16);
    }
  }
}

static SNUG_INLINE U8x16 CodesOf(F32x16 scaled, float levels) {
  const I32x16 bits = reinterpret_cast<I32x16>(scaled);
  const I32x16 nan = (static_cast<int32_t>(kInfinityBits) - (bits & 0x7fffffff)) >> 31;
  const F32x16 below = Select(SignMask(levels - scaled), Splat(levels), scaled);
  const F32x16 within = Select(SignMask(scaled) | nan, F32x16{}, below);
  return __builtin_convertvector(__builtin_convertvector(within, I32x16), U8x16);
}

// Values (LoadBlock's) to codes, and a block's range.
static inline void QuantizeBlock(const Quantized& q, const Dither& dither, const BlockAt& at,
                                 const Floats128& x) {
  const float levels = LevelsOf(q.bits);
  if (q.kind == RangeKind::kBlocks) {
    static_cast<Range16*>(q.ranges)[at.row * RangeBlocks(at.C) + at.block] = BlockRange(x, levels);
  }
  ElementRanges ranges;
  LoadRanges(q, at, ranges);
  for (float& step : ranges.step.at) step = InverseStep(step);
  uint16_t halves[kRangeBlock];
  Draw(dither, q, at, halves);
  uint8_t codes[kRangeBlock];
  ForBlockVectors([&](int64_t c) SNUG_LAMBDA {
    U16x16 half;
    memcpy(&half, halves + c, sizeof(half));
    F32x16 u = __builtin_convertvector(half, F32x16) * 0x1p-16f;
    Scale(Load(x.at + c, Whole{}), Load(ranges.low.at + c, Whole{}),
          Load(ranges.step.at + c, Whole{}), u);
    const U8x16 code = CodesOf(u, levels);
    memcpy(codes + c, &code, sizeof(code));
  });
  StoreCodes(q, at, codes);
}

// Codes to values. Those behind the row's end are finite, or that of its last range.
static inline void DequantizeBlock(const Quantized& q, const BlockAt& at, Floats128& x) {
  ElementRanges ranges;
  LoadRanges(q, at, ranges);
  uint8_t codes[kRangeBlock] = {};
  LoadCodes(q, at, codes);
  ForBlockVectors([&](int64_t c) SNUG_LAMBDA {
    U8x16 code;
    memcpy(&code, codes + c, sizeof(code));
    F32x16 value = __builtin_convertvector(code, F32x16);
    Reconstruct(value, Load(ranges.low.at + c, Whole{}), Load(ranges.step.at + c, Whole{}));
    Store(x.at + c, value, Whole{});
  });
}

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_QUANTIZED_H_
