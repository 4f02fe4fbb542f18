// One update of AdamW on sixteen elements, whatever their moments lie in.
#ifndef KERNELS_CPU_LOOPS_ADAMW_H_
#define KERNELS_CPU_LOOPS_ADAMW_H_

#include <cmath>
#include <cstdint>

#include "kernels/adamw.h"
#include "kernels/adamw_scalars.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {

static SNUG_INLINE F32x16 Sqrt(F32x16 v) {
  float lanes[kLanes];
  Store(lanes, v, Whole{});
  for (float& lane : lanes) lane = std::sqrt(lane);
  return Load(lanes, Whole{});
}

struct MomentLanes {
  F32x16 first, second;
};

// Moves p[i ..] and its copy, and gives the new moments.
template <typename Extent>
static SNUG_INLINE MomentLanes UpdateLanes(const AdamWTensor& t, const AdamWScalars& s, int64_t i,
                                           MomentLanes moments, Extent part) {
  const F32x16 gradient = Load(t.g + i, part) * s.grad_scale;
  moments.first += s.one_minus_beta1 * (gradient - moments.first);
  moments.second = moments.second * s.beta2 + (s.one_minus_beta2 * gradient) * gradient;
  const F32x16 denominator = Sqrt(moments.second) / s.sqrt_correction2 + s.eps;
  const F32x16 decayed = Load(t.p + i, part) * (t.decay ? s.decay : 1.0f);
  const F32x16 next = decayed + (s.minus_step_size * moments.first) / denominator;
  Store(t.p + i, next, part);
  if (t.copy == nullptr) return moments;
  if (t.copy_dtype == DType::kF16) {
    Store(static_cast<f16*>(t.copy) + i, next, part);
  } else {
    Store(static_cast<bf16*>(t.copy) + i, next, part);
  }
  return moments;
}

}  // namespace snug::kernels::SNUG_ISA

#endif  // KERNELS_CPU_LOOPS_ADAMW_H_
