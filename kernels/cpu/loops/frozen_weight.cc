// Inner loops that quantise and dequantise frozen weights.
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/frozen_tile.h"
#include "kernels/cpu/loops/frozen_values.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

// A whole block.
template <typename T>
SNUG_INLINE void Nf4Block(const Nf4Weight& w, int64_t block, T* to) {
  const auto* codes = static_cast<const uint8_t*>(w.codes) + block * (kNf4Block / 2);
  const F32x16 scaled = Nf4Scaled(w, block);
  for (int64_t i = 0; i < kNf4Block; i += kLanes) {
    Store(to + i, Nf4Lanes(codes + i / 2, scaled), Whole{});
  }
}

template <typename T>
void Nf4Row(const FrozenTile& t, int64_t n, T* to) {
  const int64_t end = n * t.K + t.columns.end;
  for (int64_t e = n * t.K + t.columns.begin; e < end;) {
    const int64_t block_end = (e / kNf4Block + 1) * kNf4Block;
    const int64_t count = (block_end < end ? block_end : end) - e;
    if (count == kNf4Block) {
      Nf4Block(t.W.nf4, e / kNf4Block, to);
    } else {
      float values[kNf4Block] = {};
      Nf4Values(t.W.nf4, e, count, values);
      ForVectors(count, [&](int64_t c, auto part)
                            SNUG_LAMBDA { Store(to + c, Load(values + c, part), part); });
    }
    to += count;
    e += count;
  }
}

template <typename T>
void Int8Row(const FrozenTile& t, int64_t n, T* to) {
  const int8_t* codes = t.W.int8.codes + n * t.W.int8.codes_stride + t.columns.begin;
  const float absmax = t.W.int8.absmax[n];
  ForVectors(t.columns.end - t.columns.begin, [&](int64_t c, auto part) SNUG_LAMBDA {
    Store(to + c, Int8Lanes(codes + c, absmax, part), part);
  });
}

// ---- quantising ---------------------------------------------------------------------------------

SNUG_INLINE I32x16 Magnitude(F32x16 v) { return As<I32x16>(v) & 0x7fffffff; }
// The larger of each lane, as bits: numbers that are not negative order as their bits do.
SNUG_INLINE I32x16 LargerOf(I32x16 a, I32x16 b) {
  const I32x16 rises = (a - b) >> 31;
  return (b & rises) | (a & ~rises);
}
SNUG_INLINE float LargestOf(I32x16 magnitudes) { return MaxLane(As<F32x16>(magnitudes)); }

template <typename T>
void QuantizeInt8Row(const QuantizeInt8WeightParams& p, int64_t n) {
  const T* w = RowOf<T>(p.w, n, p.w_stride);
  int8_t* codes = p.to.codes + n * p.to.codes_stride;
  I32x16 largest{};
  ForVectors(p.K, [&](int64_t k, auto part)
                      SNUG_LAMBDA { largest = LargerOf(largest, Magnitude(Load(w + k, part))); });
  const float absmax = LargestOf(largest), scale = Int8Scale(absmax);
  ForVectors(p.K, [&](int64_t k, auto part) SNUG_LAMBDA {
    const F32x16 rounded = (Load(w + k, part) * scale + 12582912.0f) - 12582912.0f;
    const I8x16 some = NarrowedTo<I8x16>(Convert<I32x16>(rounded));
    memcpy(codes + k, &some, Count(part));
  });
  p.to.absmax[n] = absmax;
}

// Elements of block b, 0 behind the last one.
template <typename T>
SNUG_INLINE void LoadNf4Block(const QuantizeNf4Params& p, int64_t b, float* values) {
  const int64_t begin = b * kNf4Block, left = p.N * p.K - begin;
  const int64_t count = left < kNf4Block ? left : kNf4Block;
  int64_t row = begin / p.K, column = begin % p.K;
  for (int64_t i = 0; i < count;) {  // Row by row.
    const int64_t some = p.K - column < count - i ? p.K - column : count - i;
    const T* w = RowOf<T>(p.w, row, p.w_stride) + column;
    ForVectors(some, [&](int64_t c, auto part)
                         SNUG_LAMBDA { Store(values + i + c, Load(w + c, part), part); });
    i += some;
    column = 0;
    ++row;
  }
}

// Returns absmax.
float QuantizeNf4Values(const float* values, int64_t bytes, uint8_t* codes) {
  I32x16 largest{};
  for (int64_t i = 0; i < kNf4Block; i += kLanes) {
    largest = LargerOf(largest, Magnitude(Load(values + i, Whole{})));
  }
  const float absmax = LargestOf(largest), inverse = InverseOf(absmax);
  uint8_t all[kNf4Block / 2];
  for (int64_t i = 0; i < kNf4Block; i += kLanes) {
    const F32x16 x = Load(values + i, Whole{}) * inverse;
    I32x16 code{};  // How many bounds are smaller: Nf4Code.
    for (const float bound : kNf4Bounds.at) code -= SignMask(bound - x);
    // Two lanes are one number of 64 bits; the first code goes to the upper half of a byte.
    const U64x8 lanes = As<U64x8>(code);
    const uint64_t pairs = LowestBytes(lanes << 4 | lanes >> 32);
    memcpy(all + i / 2, &pairs, sizeof(pairs));
  }
  memcpy(codes, all, bytes);
  return absmax;
}

}  // namespace

void DequantizeTile(const FrozenTile& t) {
  ByType(t.dtype, [&](auto type) {
    using T = decltype(type);
    for (int64_t n = t.rows.begin; n < t.rows.end; ++n) {
      T* to = RowOf<T>(t.to, n - t.rows.begin, t.stride);
      if (t.W.kind == FrozenKind::kNf4) {
        Nf4Row(t, n, to);
      } else {
        Int8Row(t, n, to);
      }
    }
  });
}

void QuantizeInt8Rows(const QuantizeInt8WeightParams& p, Range rows) {
  ByType(p.dtype, [&](auto t) {
    for (int64_t n = rows.begin; n < rows.end; ++n) QuantizeInt8Row<decltype(t)>(p, n);
  });
}

// Codes of these blocks, and absmax of each.
void QuantizeNf4Blocks(const QuantizeNf4Params& p, float* absmax, Range blocks) {
  auto* codes = static_cast<uint8_t*>(p.to.codes);
  const int64_t all = Nf4CodeBytes(p.N * p.K);
  ByType(p.dtype, [&](auto t) {
    for (int64_t b = blocks.begin; b < blocks.end; ++b) {
      float values[kNf4Block] = {};
      LoadNf4Block<decltype(t)>(p, b, values);
      const int64_t begin = b * (kNf4Block / 2), left = all - begin;
      absmax[b] =
          QuantizeNf4Values(values, left < kNf4Block / 2 ? left : kNf4Block / 2, codes + begin);
    }
  });
}

}  // namespace snug::kernels::SNUG_ISA
