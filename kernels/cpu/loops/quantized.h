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

// A range of all elements of a block, or of each element.
struct OneRange {
  Range32 range;
  SNUG_INLINE F32x16 Step(int64_t) const { return Splat(range.step); }
  SNUG_INLINE F32x16 Low(int64_t) const { return Splat(range.low); }
  // With one over the step in its place.
  SNUG_INLINE OneRange Inverted() const { return {{InverseStep(range.step), range.low}}; }
};
struct ElementRanges {
  Floats128 step, low;
  SNUG_INLINE F32x16 Step(int64_t c) const { return Load(step.at + c, Whole{}); }
  SNUG_INLINE F32x16 Low(int64_t c) const { return Load(low.at + c, Whole{}); }
  SNUG_INLINE ElementRanges Inverted() const {
    ElementRanges inverted = *this;
    for (float& at : inverted.step.at) at = InverseStep(at);
    return inverted;
  }
};

// The groups' ranges of the row that a block lies in.
static SNUG_INLINE const Range32* GroupRanges(const Quantized& q, const BlockAt& at) {
  return static_cast<const Range32*>(q.ranges) +
         RowGroup(q.grouping, q.first_row + at.row) * (at.C / GroupColumns(q.grouping, at.C));
}

// Of a block that several groups share. Elements behind the row's end have the last one's.
static inline void LoadRanges(const Quantized& q, const BlockAt& at, ElementRanges& to) {
  const int64_t width = GroupColumns(q.grouping, at.C), last = at.count() - 1;
  const Range32* ranges = GroupRanges(q, at);
  for (int64_t c = 0; c < kRangeBlock; ++c) {
    const Range32 range = ranges[(at.begin() + (c < last ? c : last)) / width];
    to.step.at[c] = range.step;
    to.low.at[c] = range.low;
  }
}

// body(OneRange) or body(ElementRanges).
template <typename Body>
static SNUG_INLINE void WithRanges(const Quantized& q, const BlockAt& at, Body body) {
  if (q.kind == RangeKind::kBlocks) {
    const auto* ranges = static_cast<const Range16*>(q.ranges);
    return body(OneRange{Widened(ranges[at.row * RangeBlocks(at.C) + at.block])});
  }
  const int64_t width = GroupColumns(q.grouping, at.C), group = at.begin() / width;
  if (group == (at.begin() + at.count() - 1) / width) {
    return body(OneRange{GroupRanges(q, at)[group]});
  }
  ElementRanges ranges;
  LoadRanges(q, at, ranges);
  body(ranges);
}

// ---- both ways ----------------------------------------------------------------------------------

// The random halves of a block's elements; to nearest, 1/2 for all.
static SNUG_INLINE void Draw(const Dither& dither, const Quantized& q, const BlockAt& at,
                             uint16_t* halves) {
  if (dither.rounding == Rounding::kNearest) {
    for (int64_t c = 0; c < kRangeBlock; ++c) halves[c] = 0x8000;
    return;
  }
  const WordRun run = RandomRun(dither.site, RandomBlockOf(q.first_row + at.row, at.C, at.begin()));
  static_assert(sizeof(run) == kRangeBlock * sizeof(*halves));
  memcpy(halves, &run, sizeof(run));
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
  uint16_t halves[kRangeBlock];
  Draw(dither, q, at, halves);
  uint8_t codes[kRangeBlock];
  WithRanges(q, at, [&](const auto& ranges) SNUG_LAMBDA {
    const auto inverses = ranges.Inverted();
    ForBlockVectors([&](int64_t c) SNUG_LAMBDA {
      U16x16 half;
      memcpy(&half, halves + c, sizeof(half));
      const I32x16 whole = reinterpret_cast<I32x16>(Widened(half));
      F32x16 u = __builtin_convertvector(whole, F32x16) * 0x1p-16f;
      Scale(Load(x.at + c, Whole{}), ranges.Low(c), inverses.Step(c), u);
      const U8x16 code = CodesOf(u, levels);
      memcpy(codes + c, &code, sizeof(code));
    });
  });
  StoreCodes(q, at, codes);
}

// Codes to values. Those behind the row's end are finite, or that of its last range.
static inline void DequantizeBlock(const Quantized& q, const BlockAt& at, Floats128& x) {
  uint8_t codes[kRangeBlock];
  LoadCodes(q, at, codes);
  WithRanges(q, at, [&](const auto& ranges) SNUG_LAMBDA {
    ForBlockVectors([&](int64_t c) SNUG_LAMBDA {
      U8x16 code;
      memcpy(&code, codes + c, sizeof(code));
      F32x16 value = __builtin_convertvector(Widened(code), F32x16);
      Reconstruct(value, ranges.Low(c), ranges.Step(c));
      Store(x.at + c, value, Whole{});
    });
  });
}

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_QUANTIZED_H_
