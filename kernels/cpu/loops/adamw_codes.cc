// AdamW with its moments in 8 bits, block by block of 256: levels are looked up, codes are computed
// as DynamicCode of kernels/dynamic_map.h computes them, sixteen at a time.
#include "kernels/cpu/loops/adamw.h"
#include "kernels/cpu/loops/dynamic_code.h"
#include "kernels/cpu/loops/range.h"

namespace snug::kernels::SNUG_ISA {
namespace {

struct Levels {
  float at[256];
};
constexpr Levels MakeLevels(bool is_signed) {
  Levels levels = {};
  for (int code = 0; code < 256; ++code) levels.at[code] = DynamicLevel(is_signed, code);
  return levels;
}
constexpr Levels kSignedLevels = MakeLevels(true), kUnsignedLevels = MakeLevels(false);
constexpr DynamicEdges kSignedEdges = MakeDynamicEdges(true);
constexpr DynamicEdges kUnsignedEdges = MakeDynamicEdges(false);

SNUG_INLINE F32x16 Decode(const Levels& levels, const uint8_t* codes, Whole) {
  const auto at = [&](int lane) SNUG_LAMBDA { return levels.at[codes[lane]]; };
  // Not by way of memory: a vector's load would wait for sixteen stores.
  return OfHalves(F32x8{at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)},
                  F32x8{at(8), at(9), at(10), at(11), at(12), at(13), at(14), at(15)});
}
SNUG_INLINE F32x16 Decode(const Levels& levels, const uint8_t* codes, Part part) {
  uint8_t all[kLanes] = {};
  memcpy(all, codes, part.count);
  return Decode(levels, all, Whole{});
}

// The moments of a block, and the bits of their largest magnitude: as integers, magnitudes order as
// numbers do, infinity and NaN above all.
struct Block {
  float x[kCodeBlock];
  I32x16 largest = {};
  SNUG_INLINE void Add(int64_t i, F32x16 v) {
    Store(x + i, v, Whole{});
    const I32x16 magnitude = As<I32x16>(v) & 0x7fffffff;
    const I32x16 rises = (largest - magnitude) >> 31;
    largest = (magnitude & rises) | (largest & ~rises);
  }
};

// The codes of the first n numbers of a block, and their scale.
template <bool kSigned>
SNUG_INLINE void StoreBlock(const Block& block, int64_t n, uint8_t* codes, float* scale) {
  int32_t bits = 0;
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    bits = block.largest[lane] > bits ? block.largest[lane] : bits;
  }
  *scale = FloatOfBits(static_cast<uint32_t>(bits));
  const float inverse = InverseOfScale(static_cast<uint32_t>(bits));
  const auto code_of = [&](int64_t i) SNUG_LAMBDA {
    const F32x16 x = inverse == 0.0f ? F32x16{} : Load(block.x + i, Whole{}) * inverse;
    return NarrowedTo<U8x16>(CodeLanes<kSigned>(kSigned ? kSignedEdges : kUnsignedEdges, x));
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const U8x16 code = code_of(i);
    memcpy(codes + i, &code, sizeof(code));
  }
  if (i == n) return;
  const U8x16 code = code_of(i);
  memcpy(codes + i, &code, n - i);
}

}  // namespace

// Elements are whole blocks, but for the tensor's last.
void AdamWCodedElements(const AdamWTensor& t, const AdamWScalars& s, Range elements) {
  for (int64_t begin = elements.begin; begin < elements.end; begin += kCodeBlock) {
    const int64_t n = elements.end - begin < kCodeBlock ? elements.end - begin : kCodeBlock;
    uint8_t *m = t.codes.m + begin, *v = t.codes.v + begin;
    float* m_scale = t.codes.m_scale + begin / kCodeBlock;
    float* v_scale = t.codes.v_scale + begin / kCodeBlock;
    Block first, second;
    ForVectors(n, [&](int64_t i, auto part) SNUG_LAMBDA {
      const MomentLanes before = {Decode(kSignedLevels, m + i, part) * *m_scale,
                                  Decode(kUnsignedLevels, v + i, part) * *v_scale};
      const MomentLanes after = UpdateLanes(t, s, begin + i, before, part);
      first.Add(i, FillBeyond(after.first, part, 0.0f));
      second.Add(i, FillBeyond(after.second, part, 0.0f));
    });
    StoreBlock<true>(first, n, m, m_scale);
    StoreBlock<false>(second, n, v, v_scale);
  }
}

}  // namespace snug::kernels::SNUG_ISA
