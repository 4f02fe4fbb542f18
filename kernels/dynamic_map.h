// 8-bit numbers of the dynamic data type (Dettmers 2016, arXiv 1511.04561; for optimizer states
// Dettmers et al. 2022, arXiv 2110.02861, section 2.1), in [-1, 1] or [0, 1]: seven decades below
// 1, each with twice as many levels as the one below it, so that numbers of every size have a level
// and those near the largest are the finest.
//
//   decade i = 0 .. 6 has n = 2^i levels (2^(i+1) of the unsigned), 10^(i-6) * (0.1 + 0.9 (k + 1/2)
//   / n), and there are 0 and 1; of the signed type those of the decades with a minus, too
//
// Codes number the 256 levels in rising order, as bitsandbytes' create_dynamic_map sorts them. A
// number is rounded to the nearest level; within 1e-5 of a step of the middle between two, to
// either one, but the same one on every device.
#ifndef KERNELS_DYNAMIC_MAP_H_
#define KERNELS_DYNAMIC_MAP_H_

#include <cmath>
#include <cstdint>

#include "kernels/types.h"

namespace snug::kernels {

// Elements that share a scale, their largest magnitude.
inline constexpr int64_t kCodeBlock = 256;

inline constexpr int kDecades = 7;
// Levels of decade i.
SNUG_HOST_DEVICE constexpr int DecadeLevels(bool is_signed, int i) {
  return 1 << (is_signed ? i : i + 1);
}
// Levels below decade i, zero included: where decade i begins among the magnitudes.
SNUG_HOST_DEVICE constexpr int DecadeBegin(bool is_signed, int i) {
  return DecadeLevels(is_signed, i) - (is_signed ? 0 : 1);
}
SNUG_HOST_DEVICE constexpr double DecadeTop(int i) {
  double top = 1.0;
  for (; i < kDecades - 1; ++i) top /= 10.0;
  return top;
}

// The level of a code.
SNUG_HOST_DEVICE constexpr float DynamicLevel(bool is_signed, int code) {
  const int place = is_signed ? (code < 127 ? 127 - code : code - 127) : code;
  if (place == 0) return 0.0f;
  if (place >= DecadeBegin(is_signed, kDecades)) return 1.0f;
  int i = 0;
  while (place >= DecadeBegin(is_signed, i + 1)) ++i;
  const double n = DecadeLevels(is_signed, i), k = place - DecadeBegin(is_signed, i);
  const double level = DecadeTop(i) * (0.1 + 0.9 * (k + 0.5) / n);
  return static_cast<float>(is_signed && code < 127 ? -level : level);
}

// What rounding needs, per decade: magnitudes above `edge` are nearer to its first level than to
// the one below; edge[kDecades] is that of the level 1.
struct DynamicEdges {
  float edge[kDecades + 1] = {};
  float per_unit[kDecades] = {};  // Steps.
  float levels[kDecades] = {};
};
constexpr DynamicEdges MakeDynamicEdges(bool is_signed) {
  DynamicEdges edges;
  for (int i = 0; i <= kDecades; ++i) {
    const int first = (is_signed ? 127 : 0) + DecadeBegin(is_signed, i);
    const double below = DynamicLevel(is_signed, first - 1), level = DynamicLevel(is_signed, first);
    edges.edge[i] = static_cast<float>((below + level) / 2.0);
    if (i == kDecades) break;
    const int levels = DecadeLevels(is_signed, i);
    edges.per_unit[i] = static_cast<float>(levels / (0.9 * DecadeTop(i)));
    edges.levels[i] = static_cast<float>(levels);
  }
  return edges;
}

// The code of x, a number in [-1, 1], or a unit beyond by rounding; not NaN.
template <bool kSigned>
SNUG_HOST_DEVICE inline uint8_t DynamicCode(const DynamicEdges& edges, float x) {
  const float magnitude = x < 0.0f ? -x : x;
  float per_unit = 0.0f, levels = 1.0f;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int i = 0; i < kDecades; ++i) {
    const bool reached = magnitude > edges.edge[i];
    per_unit = reached ? edges.per_unit[i] : per_unit;
    levels = reached ? edges.levels[i] : levels;
  }
  const float steps = magnitude * per_unit - levels * (1.0f / 9.0f);
  const float step = floorf(steps < levels - 1.0f ? steps : levels - 1.0f);
  int place = static_cast<int>(levels + step) - (kSigned ? 0 : 1);
  if (!(magnitude > edges.edge[0])) place = 0;
  if (magnitude > edges.edge[kDecades]) place = kSigned ? 128 : 255;
  if (!kSigned) return static_cast<uint8_t>(place);
  if (x < 0.0f) return static_cast<uint8_t>(127 - (place < 127 ? place : 127));
  return static_cast<uint8_t>(127 + place);
}

// What a block's numbers are multiplied by before they are rounded: one over their largest
// magnitude, which is given as its bits. 0, so that all have the code of zero, for a block with
// nothing above 2^-126 in it, or with a NaN or infinity: a scale that is not finite makes NaN of
// them all.
SNUG_HOST_DEVICE inline float InverseOfScale(uint32_t scale_bits) {
  const bool is_normal = scale_bits >= 0x00800000u && scale_bits < 0x7f800000u;
  return is_normal ? 1.0f / FloatOfBits(scale_bits) : 0.0f;
}

}  // namespace snug::kernels

#endif  // KERNELS_DYNAMIC_MAP_H_
