// Codes of the dynamic 8-bit numbers, sixteen at a time: DynamicCode of kernels/dynamic_map.h.
#ifndef KERNELS_CPU_LOOPS_DYNAMIC_CODE_H_
#define KERNELS_CPU_LOOPS_DYNAMIC_CODE_H_

#include <cstdint>

#include "kernels/cpu/loops/vector.h"
#include "kernels/dynamic_map.h"

namespace snug::kernels::SNUG_ISA {

// Of numbers in [-1, 1].
template <bool kSigned>
static SNUG_INLINE I32x16 CodeLanes(const DynamicEdges& edges, F32x16 x) {
  const F32x16 magnitude = reinterpret_cast<F32x16>(reinterpret_cast<I32x16>(x) & 0x7fffffff);
  F32x16 per_unit = {}, levels = Splat(1.0f);
  for (int i = 0; i < kDecades; ++i) {
    const I32x16 reached = SignMask(edges.edge[i] - magnitude);
    per_unit = Select(reached, Splat(edges.per_unit[i]), per_unit);
    levels = Select(reached, Splat(edges.levels[i]), levels);
  }
  const F32x16 steps = magnitude * per_unit - levels * (1.0f / 9.0f);
  const F32x16 last = levels - 1.0f;
  const F32x16 step = Select(SignMask(steps - last), steps, last);
  // Where the first decade is not reached, `steps` is negative, and not used.
  I32x16 place = __builtin_convertvector(step, I32x16) + __builtin_convertvector(levels, I32x16) -
                 (kSigned ? 0 : 1);
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
