// Ranges of codes (kernels/quantize.h): that of values, and those that a block of codes has.
#ifndef KERNELS_CPU_LOOPS_CODE_RANGES_H_
#define KERNELS_CPU_LOOPS_CODE_RANGES_H_

#include <cstdint>

#include "kernels/cpu/loops/code_blocks.h"
#include "kernels/cpu/loops/vector.h"
#include "kernels/quantize.h"
#include "kernels/quantize_code.h"

namespace snug::kernels::SNUG_ISA {

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

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_CODE_RANGES_H_
