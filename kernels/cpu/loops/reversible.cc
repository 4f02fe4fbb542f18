// Inner loops of reversible streams.
#include "kernels/reversible.h"

#include <cstring>

#include "kernels/cpu/loops/codes.h"
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

SNUG_INLINE U32x16 LoadWords(const int32_t* v, Whole) { return FromMemory<U32x16>(v); }
SNUG_INLINE U32x16 LoadWords(const int32_t* v, Part part) {
  int32_t some[kLanes] = {};
  memcpy(some, v, part.count * sizeof(*v));
  return FromMemory<U32x16>(some);
}
SNUG_INLINE void StoreWords(int32_t* v, U32x16 words, Whole) { ToMemory(v, words); }
SNUG_INLINE void StoreWords(int32_t* v, U32x16 words, Part part) {
  int32_t all[kLanes];
  ToMemory(all, words);
  memcpy(v, all, part.count * sizeof(*v));
}

SNUG_INLINE F32x16 FloatsOf(U32x16 bits) { return As<F32x16>(bits); }
SNUG_INLINE U32x16 BitsOfLanes(F32x16 v) { return As<U32x16>(v); }
SNUG_INLINE U32x16 Mask(U32x16 sign) { return As<U32x16>(As<I32x16>(sign) >> 31); }

// Sign bits tell of lanes that overflowed.
struct Words {
  U32x16 value, overflow;
};

// rint(f * scale). What is not below 2^31, NaN included, is taken out before the conversion, whose
// result the language leaves open.
SNUG_INLINE Words ToFixed(F32x16 f, float scale) {
  const F32x16 x = f * scale;
  const U32x16 bits = BitsOfLanes(x), magnitude = bits & 0x7fffffffu;
  const U32x16 number = Mask(magnitude - 0x7f800001u), fits = Mask(magnitude - 0x4f000000u);
  // Below 2^23 adding 2^23 rounds, to even; from there on numbers are whole.
  const U32x16 small = Mask(magnitude - 0x4b000000u);
  const F32x16 rounding = FloatsOf(BitsOfLanes(Splat(0x1p23f)) | (bits & 0x80000000u));
  const F32x16 rounded = Select(As<I32x16>(small), (x + rounding) - rounding, x);
  const F32x16 safe = FloatsOf(BitsOfLanes(rounded) & fits);
  const U32x16 whole = As<U32x16>(Convert<I32x16>(safe));
  const U32x16 bound = 0x7fffffffu + (bits >> 31);  // -2^31 for negative ones.
  return {(whole & fits) | (bound & ~fits & number), ~fits};
}

SNUG_INLINE U32x16 LeavesRoom(U32x16 v) { return v + fixed_point::kRoom; }

SNUG_INLINE F32x16 ToFloats(U32x16 v, float step) { return Convert<F32x16>(As<I32x16>(v)) * step; }

SNUG_INLINE bool AnySign(U32x16 v) {
  uint32_t any = 0;
  for (int64_t lane = 0; lane < kLanes; ++lane) any |= v[lane];
  return any >> 31 != 0;
}

template <typename T, typename Y>
bool AddTyped(const FixedAddParams& p, Range rows) {
  const float scale = fixed_point::PowerOfTwo(p.q), step = fixed_point::PowerOfTwo(-p.q);
  U32x16 overflow{};
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const int32_t* v = p.v == nullptr ? nullptr : p.v + i * p.v_stride;
    const T* f = p.f == nullptr ? nullptr : RowOf<T>(p.f, i, p.f_stride);
    int32_t* out = p.v_out == nullptr ? nullptr : p.v_out + i * p.v_out_stride;
    Y* y = p.y == nullptr ? nullptr : RowOf<Y>(p.y, i, p.y_stride);
    ForVectors(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
      U32x16 sum{};
      if (v != nullptr) sum = LoadWords(v + c, part);
      if (f != nullptr) {
        const Words added = ToFixed(Load(f + c, part), scale);
        sum = p.subtract ? sum - added.value : sum + added.value;
        overflow |= added.overflow;
      }
      overflow |= LeavesRoom(sum);
      if (out != nullptr) StoreWords(out + c, sum, part);
      if (y != nullptr) Store(y + c, ToFloats(sum, step), part);
    });
  }
  return AnySign(overflow);
}

// Bit planes of a vector: two groups of eight elements, of which the second may not be there; of a
// plane the first group has byte j, the second byte shift + j.
SNUG_INLINE void WritePlanes(U32x16 low, int shift, bool both, uint8_t* side) {
  for (int j = 0; j < shift; ++j) {
    const U32x16 bit = low >> static_cast<uint32_t>(j) & 1u;
    const uint32_t plane = Gathered<1>(As<I32x16>(bit));
    side[j] = static_cast<uint8_t>(plane);
    if (both) side[shift + j] = static_cast<uint8_t>(plane >> 8);
  }
}

SNUG_INLINE U32x16 ReadPlanes(const uint8_t* side, int shift, bool both) {
  U32x16 low{};
  for (int j = 0; j < shift; ++j) {
    const uint32_t plane = side[j] | (both ? uint32_t{side[shift + j]} << 8 : 0u);
    low |= As<U32x16>(Spread<1>(plane)) << static_cast<uint32_t>(j);
  }
  return low;
}

template <typename Extent>
SNUG_INLINE U32x16 ShiftAdd(const FixedShiftAddParams& p, U32x16 v, U32x16 f, uint8_t* side,
                            Extent extent) {
  const bool both = Count(extent) > 8;
  const auto shift = static_cast<uint32_t>(p.shift);
  if (p.inverse) return (v - f) << shift | ReadPlanes(side, p.shift, both);
  WritePlanes(v, p.shift, both, side);
  return As<U32x16>(As<I32x16>(v) >> p.shift) + f;
}

template <typename T>
bool ShiftAddTyped(const FixedShiftAddParams& p, Range rows) {
  const float scale = fixed_point::PowerOfTwo(p.q);
  U32x16 overflow{};
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const int32_t* v = p.v + i * p.v_stride;
    const T* f = RowOf<T>(p.f, i, p.f_stride);
    int32_t* out = p.v_out + i * p.v_out_stride;
    uint8_t* side = p.side + i * p.side_stride;
    ForVectors(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
      const Words added = ToFixed(Load(f + c, part), scale);
      const U32x16 result =
          ShiftAdd(p, LoadWords(v + c, part), added.value, side + c / 8 * p.shift, part);
      overflow |= added.overflow | LeavesRoom(result);
      StoreWords(out + c, result, part);
    });
  }
  return AnySign(overflow);
}

}  // namespace

bool FixedAddRows(const FixedAddParams& p, Range rows) {
  bool overflow = false;
  ByType(p.dtype, [&](auto t) {
    ByType(p.y_dtype, [&](auto y) { overflow = AddTyped<decltype(t), decltype(y)>(p, rows); });
  });
  return overflow;
}

bool FixedShiftAddRows(const FixedShiftAddParams& p, Range rows) {
  bool overflow = false;
  ByType(p.dtype, [&](auto t) { overflow = ShiftAddTyped<decltype(t)>(p, rows); });
  return overflow;
}

}  // namespace snug::kernels::SNUG_ISA
