// The arithmetic of quantize.h, the same on the CPU (lane by lane, or a vector of lanes) and on
// CUDA. Each line rounds as it is written: it relies on multiply-adds not being contracted and on
// division being that of IEEE 754. Static, so that no two compilations of the loops share it.
#ifndef KERNELS_QUANTIZE_CODE_H_
#define KERNELS_QUANTIZE_CODE_H_

#include <cstdint>

#include "kernels/quantize.h"
#include "kernels/types.h"

namespace snug::kernels {

inline constexpr float kLevels8 = 255.0f, kLevels4 = 15.0f;
inline constexpr uint32_t kNanBits = 0x7fc00000u, kInfinityBits = 0x7f800000u;
// Below it 1 / step would overflow: a group that narrow is a constant, its minimum.
inline constexpr float kLeastStep = 0x1p-126f;

SNUG_HOST_DEVICE static inline float LevelsOf(CodeBits bits) {
  return bits == CodeBits::k8 ? kLevels8 : kLevels4;
}

SNUG_HOST_DEVICE static inline bool IsFinite(float x) {
  return (BitsOf(x) & 0x7fffffffu) < kInfinityBits;
}

// What is multiplied by, once per range.
SNUG_HOST_DEVICE static inline float InverseStep(float step) {
  return step >= kLeastStep ? 1.0f / step : 0.0f;
}

// F: float or a vector of them. Before clamping and dropping what is behind the point.
template <typename F>
SNUG_HOST_DEVICE static inline void Scale(const F& x, const F& low, const F& inverse, F& u) {
  u = (x - low) * inverse + u;
}
template <typename F>
SNUG_HOST_DEVICE static inline void Reconstruct(F& code, const F& low, const F& step) {
  code = code * step + low;
}

// NaN gives 0.
SNUG_HOST_DEVICE static inline uint32_t CodeOf(float scaled, float levels) {
  return scaled > 0.0f ? static_cast<uint32_t>(scaled < levels ? scaled : levels) : 0u;
}

// Half a random word as a number in [0, 1).
SNUG_HOST_DEVICE static inline float UniformOfHalf(uint32_t half) {
  return static_cast<float>(half) * 0x1p-16f;
}

// The random block of column c, and which row's.
SNUG_HOST_DEVICE static inline uint64_t RandomBlockOf(int64_t row, int64_t C, int64_t c) {
  return static_cast<uint64_t>(row * ((C + kRangeBlock - 1) / kRangeBlock) * 16 + c / 8);
}

// The range of values from `min` to `max`. `poison` is not 0 where one is not finite.
SNUG_HOST_DEVICE static inline Range32 RangeOf(float min, float max, float poison, float levels) {
  const float width = max - min;
  if (poison != 0.0f || !IsFinite(width)) return {FloatOfBits(kNanBits), FloatOfBits(kNanBits)};
  return {width / levels, min + 0.0f};  // -0 is 0.
}

// bf16 below or above, away from the values that a range must hold.
SNUG_HOST_DEVICE static inline bf16 DownToBf16(float x) {
  const uint32_t bits = BitsOf(x);
  const uint32_t away = bits >> 31 != 0 ? 0xffffu : 0u;
  return bf16{static_cast<uint16_t>((bits + away) >> 16)};
}
SNUG_HOST_DEVICE static inline bf16 UpToBf16(float not_negative) {
  return bf16{static_cast<uint16_t>((BitsOf(not_negative) + 0xffffu) >> 16)};
}

SNUG_HOST_DEVICE static inline Range16 BlockRangeOf(float min, float max, float poison,
                                                    float levels) {
  const bf16 low = DownToBf16(min + 0.0f);
  const float floor = FloatOfBits(uint32_t{low.bits} << 16);
  const Range32 range = RangeOf(floor, max, poison, levels);
  if (!IsFinite(range.low)) return {bf16{0x7fc0}, bf16{0x7fc0}};
  return {UpToBf16(range.step), low};
}
SNUG_HOST_DEVICE static inline Range32 Widened(Range16 range) {
  return {FloatOfBits(uint32_t{range.step.bits} << 16),
          FloatOfBits(uint32_t{range.low.bits} << 16)};
}

SNUG_HOST_DEVICE static inline int64_t RowGroup(const Grouping& g, int64_t row) {
  return row / g.run_rows % g.row_groups;
}
SNUG_HOST_DEVICE static inline int64_t GroupColumns(const Grouping& g, int64_t C) {
  return g.group_columns == 0 ? C : g.group_columns;
}

// One group's state and range after this call's minimum and maximum.
SNUG_HOST_DEVICE static inline void UpdateGroup(const UpdateRangesParams& p, int64_t group,
                                                const float* min_max_poison) {
  const float levels = LevelsOf(p.bits);
  const float min = min_max_poison[0], max = min_max_poison[1];
  const Range32 mine = RangeOf(min, max, min_max_poison[2], levels);
  p.ranges[group] = mine;
  if (p.alpha == nullptr || !IsFinite(mine.low)) return;
  float& alpha = p.alpha[group];
  float& beta = p.beta[group];
  if (p.updates[group] == 0) {
    alpha = max - min;
    beta = mine.low;
  } else {
    const float share = 1.0f - p.decay;
    alpha = alpha + share * (max - min - alpha);
    beta = beta + share * (mine.low - beta);
  }
  if (p.updates[group] < 0x7fffffff) ++p.updates[group];
  p.ranges[group] = {alpha / levels, beta};
}

}  // namespace snug::kernels

#endif  // KERNELS_QUANTIZE_CODE_H_
