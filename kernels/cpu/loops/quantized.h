// Values of a block of 128 neighbours of a row to codes and back: what quantising ops and the ops
// that read codes have in common.
#ifndef KERNELS_CPU_LOOPS_QUANTIZED_H_
#define KERNELS_CPU_LOOPS_QUANTIZED_H_

#include <cstdint>
#include <cstring>

#include "kernels/cpu/loops/code_blocks.h"
#include "kernels/cpu/loops/code_ranges.h"
#include "kernels/cpu/loops/random.h"
#include "kernels/cpu/loops/vector.h"
#include "kernels/quantize.h"
#include "kernels/quantize_code.h"

namespace snug::kernels::SNUG_ISA {

// The random halves of a block's elements; to nearest, 1/2 for all.
static SNUG_INLINE void Draw(const Dither& dither, const Quantized& q, const BlockAt& at,
                             uint16_t* halves) {
  if (dither.rounding == Rounding::kNearest) {
    for (int64_t c = 0; c < kRangeBlock; ++c) halves[c] = 0x8000;
    return;
  }
  const WordRun run = RandomRun(dither.site, RandomBlockOf(q.first_row + at.row, at.C, at.begin()));
  static_assert(sizeof(run) == kRangeBlock * sizeof(*halves));
  for (const U32x16& words : run.of) {
    ToMemory(halves, words);
    halves += 2 * kLanes;
  }
}

static SNUG_INLINE U8x16 CodesOf(F32x16 scaled, float levels) {
  const I32x16 bits = As<I32x16>(scaled);
  const I32x16 nan = (static_cast<int32_t>(kInfinityBits) - (bits & 0x7fffffff)) >> 31;
  const F32x16 below = Select(SignMask(levels - scaled), Splat(levels), scaled);
  const F32x16 within = Select(SignMask(scaled) | nan, F32x16{}, below);
  return NarrowedTo<U8x16>(Convert<I32x16>(within));
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
      const I32x16 whole = As<I32x16>(Widened(half));
      F32x16 u = Convert<F32x16>(whole) * 0x1p-16f;
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
      F32x16 value = Convert<F32x16>(Widened(code));
      Reconstruct(value, ranges.Low(c), ranges.Step(c));
      Store(x.at + c, value, Whole{});
    });
  });
}

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_QUANTIZED_H_
