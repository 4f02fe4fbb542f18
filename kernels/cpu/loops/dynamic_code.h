// Codes of the dynamic 8-bit numbers, sixteen at a time: DynamicCode of kernels/dynamic_map.h.
#ifndef KERNELS_CPU_LOOPS_DYNAMIC_CODE_H_
#define KERNELS_CPU_LOOPS_DYNAMIC_CODE_H_

#include <cstdint>
#include <cstring>

#include "kernels/cpu/loops/vector.h"
#include "kernels/dynamic_map.h"

namespace snug::kernels::SNUG_ISA {

// Of the decade that a magnitude lies in.
struct DecadeLanes {
  F32x16 per_unit, levels;
};

#ifdef __AVX512F__
// By tables that a register holds, where the machine permutes its lanes. Decades are longer than
// powers of two, so of numbers with one exponent at most one edge divides them: `edge`, with
// `below` edges below them all. Entry e % 32 is for the exponent e from 2^-31 to 1.
struct DecadeTables {
  int32_t below[32] = {};
  float edge[32] = {};
  float per_unit[kLanes] = {}, levels[kLanes] = {};  // By the number of edges below.
};
constexpr DecadeTables MakeDecadeTables(bool is_signed) {
  const DynamicEdges edges = MakeDynamicEdges(is_signed);
  DecadeTables tables;
  float begin = 0x1p-31f;
  for (int e = 0; e < 32; ++e, begin *= 2.0f) {
    tables.edge[e] = 4.0f;  // None.
    for (int i = 0; i < kDecades; ++i) {
      if (edges.edge[i] < begin) ++tables.below[e];
      if (edges.edge[i] >= begin && edges.edge[i] < 2.0f * begin) tables.edge[e] = edges.edge[i];
    }
  }
  tables.levels[0] = 1.0f;
  for (int i = 0; i < kDecades; ++i) {
    tables.per_unit[i + 1] = edges.per_unit[i];
    tables.levels[i + 1] = edges.levels[i];
  }
  return tables;
}
template <bool kSigned>
inline constexpr DecadeTables kDecadeTables = MakeDecadeTables(kSigned);

template <typename V, typename T>
static SNUG_INLINE V Entry(const T (&table)[32], I32x16 index) {
  V low, high;
  memcpy(&low, table, sizeof(low));
  memcpy(&high, table + kLanes, sizeof(high));
  return __builtin_shuffle(low, high, index);
}

template <bool kSigned>
static SNUG_INLINE DecadeLanes DecadeOf(const DynamicEdges&, F32x16 magnitude) {
  const DecadeTables& tables = kDecadeTables<kSigned>;
  const I32x16 above = (As<I32x16>(magnitude) >> 23) - (127 - 31);
  const I32x16 exponent = above & ~(above >> 31);
  const I32x16 reached = SignMask(Entry<F32x16>(tables.edge, exponent) - magnitude);
  const I32x16 edges_below = Entry<I32x16>(tables.below, exponent) - reached;
  return {__builtin_shuffle(Load(tables.per_unit, Whole{}), edges_below),
          __builtin_shuffle(Load(tables.levels, Whole{}), edges_below)};
}
#else
template <bool kSigned>
static SNUG_INLINE DecadeLanes DecadeOf(const DynamicEdges& edges, F32x16 magnitude) {
  DecadeLanes decade = {F32x16{}, Splat(1.0f)};
  for (int i = 0; i < kDecades; ++i) {
    const I32x16 reached = SignMask(edges.edge[i] - magnitude);
    decade.per_unit = Select(reached, Splat(edges.per_unit[i]), decade.per_unit);
    decade.levels = Select(reached, Splat(edges.levels[i]), decade.levels);
  }
  return decade;
}
#endif

// Of numbers in [-1, 1].
template <bool kSigned>
static SNUG_INLINE I32x16 CodeLanes(const DynamicEdges& edges, F32x16 x) {
  const F32x16 magnitude = As<F32x16>(As<I32x16>(x) & 0x7fffffff);
  const auto [per_unit, levels] = DecadeOf<kSigned>(edges, magnitude);
  const F32x16 steps = magnitude * per_unit - levels * (1.0f / 9.0f);
  const F32x16 last = levels - 1.0f;
  const F32x16 step = Select(SignMask(steps - last), steps, last);
  // Where the first decade is not reached, `steps` is negative, and not used.
  I32x16 place = Convert<I32x16>(step) + Convert<I32x16>(levels) - (kSigned ? 0 : 1);
  place &= SignMask(edges.edge[0] - magnitude);
  const I32x16 top = SignMask(edges.edge[kDecades] - magnitude);
  place = (place & ~top) | ((kSigned ? 128 : 255) & top);
  if constexpr (!kSigned) return place;
  const I32x16 sign = SignMask(x);
  const I32x16 below = place - (place >> 7);  // There is no -1.
  return 127 + ((place & ~sign) | (-below & sign));
}

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_DYNAMIC_CODE_H_
