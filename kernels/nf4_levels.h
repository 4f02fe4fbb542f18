// The numbers of NF4's definition (nf4.h), and which code a number gets: the same on the CPU and on
// CUDA. Static, so that no two compilations of the loops share it.
#ifndef KERNELS_NF4_LEVELS_H_
#define KERNELS_NF4_LEVELS_H_

#include <cstdint>

#include "kernels/nf4.h"
#include "kernels/types.h"

namespace snug::kernels {

// QLoRA, appendix E: quantiles of the normal distribution, scaled to [-1, 1].
struct Nf4Levels {
  float at[16];
};
inline constexpr Nf4Levels kNf4Levels = {
    {-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
     -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
     0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
     0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f}};
inline constexpr uint32_t kNf4Zero = 7;

// The points between neighbouring levels, as bitsandbytes has them: a code is how many of them are
// smaller.
struct Nf4Bounds {
  float at[15];
};
inline constexpr Nf4Bounds kNf4Bounds = {
    {-0.8480964004993439f, -0.6106329262256622f, -0.4599952697753906f, -0.33967943489551544f,
     -0.23460740596055984f, -0.13791173323988914f, -0.045525018125772476f, 0.03979014977812767f,
     0.1202552504837513f, 0.2035212516784668f, 0.2920137718319893f, 0.3893125355243683f,
     0.5016634166240692f, 0.6427869200706482f, 0.8614784181118011f}};

// The signed dynamic map, from its half above zero: entry 127 is 0, 127 + k and 127 - k are
// +-above[k - 1] for k = 1 .. 127, and 255 is 1. Decade i has 2^i entries, the middles of [0.1, 1]
// divided into as many parts, times 10^(i - 6), each operation rounded to fp32.
struct DynamicMap {
  float above[127];
};
inline constexpr DynamicMap kDynamicMap = {{
    5.50000038e-07f, 3.25000019e-06f, 7.7499999e-06f,  2.12499981e-05f, 4.37499984e-05f,
    6.62500024e-05f, 8.87499991e-05f, 0.000156250011f, 0.000268750038f, 0.000381250022f,
    0.000493750034f, 0.000606250076f, 0.00071875006f,  0.000831249985f, 0.000943750085f,
    0.00128124992f,  0.00184375001f,  0.00240624999f,  0.00296874996f,  0.00353124971f,
    0.00409374991f,  0.00465624966f,  0.00521875033f,  0.00578125007f,  0.00634374982f,
    0.00690625003f,  0.00746874977f,  0.00803124998f,  0.00859375019f,  0.00915624946f,
    0.00971874967f,  0.0114062503f,   0.0142187504f,   0.0170312505f,   0.0198437516f,
    0.0226562507f,   0.0254687499f,   0.028281251f,    0.0310937501f,   0.0339062512f,
    0.0367187522f,   0.0395312496f,   0.0423437469f,   0.0451562516f,   0.047968749f,
    0.05078125f,     0.053593751f,    0.0564062484f,   0.0592187531f,   0.0620312504f,
    0.0648437515f,   0.0676562563f,   0.0704687461f,   0.0732812509f,   0.0760937482f,
    0.078906253f,    0.0817187577f,   0.0845312476f,   0.0873437524f,   0.0901562497f,
    0.0929687545f,   0.0957812592f,   0.0985937491f,   0.107031256f,    0.12109375f,
    0.135156244f,    0.149218753f,    0.163281247f,    0.177343756f,    0.19140625f,
    0.205468744f,    0.219531253f,    0.233593747f,    0.247656241f,    0.26171875f,
    0.275781274f,    0.289843738f,    0.303906262f,    0.317968726f,    0.33203125f,
    0.346093744f,    0.360156238f,    0.374218762f,    0.388281226f,    0.40234375f,
    0.416406244f,    0.430468738f,    0.444531262f,    0.458593726f,    0.47265625f,
    0.486718714f,    0.500781238f,    0.514843702f,    0.528906226f,    0.54296875f,
    0.557031274f,    0.571093798f,    0.585156262f,    0.599218726f,    0.61328125f,
    0.627343774f,    0.641406298f,    0.655468762f,    0.669531226f,    0.68359375f,
    0.697656274f,    0.711718798f,    0.725781262f,    0.739843726f,    0.75390625f,
    0.767968774f,    0.782031238f,    0.796093762f,    0.810156226f,    0.82421875f,
    0.838281274f,    0.852343738f,    0.866406262f,    0.880468726f,    0.89453125f,
    0.908593774f,    0.922656238f,    0.936718762f,    0.950781226f,    0.96484375f,
    0.978906274f,    0.992968738f,
}};
inline constexpr uint32_t kDynamicZero = 127;

SNUG_HOST_DEVICE static inline float DynamicValue(const DynamicMap& map, uint32_t code) {
  if (code == 255) return 1.0f;
  if (code == kDynamicZero) return 0.0f;
  return code > kDynamicZero ? map.above[code - kDynamicZero - 1]
                             : -map.above[kDynamicZero - 1 - code];
}

// x in [-1, 1].
SNUG_HOST_DEVICE static inline uint32_t Nf4Code(const Nf4Bounds& bounds, float x) {
  uint32_t code = 0;
  for (int k = 0; k < 15; ++k) code += x > bounds.at[k] ? 1u : 0u;
  return code;
}

// The nearest entry, ties to the lower one: between which entries x lies, then which is nearer.
SNUG_HOST_DEVICE static inline uint32_t DynamicCode(const DynamicMap& map, float x) {
  uint32_t low = 0, high = 255;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    if (DynamicValue(map, middle) < x) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const float between = (DynamicValue(map, low) + DynamicValue(map, high)) * 0.5f;
  return x > between ? high : low;
}

// What a block's elements are multiplied by to lie in [-1, 1]; 0 for a block of zeros.
SNUG_HOST_DEVICE static inline float InverseOf(float absmax) {
  return absmax > 0.0f ? 1.0f / absmax : 0.0f;
}

SNUG_HOST_DEVICE static inline float Nf4Absmax(const Nf4Weight& w, const DynamicMap& map,
                                               int64_t block) {
  if (w.absmax_codes == nullptr) return w.absmax[block];
  const float scaled = DynamicValue(map, w.absmax_codes[block]) * w.absmax[block / kNf4Group];
  return scaled + *w.offset;
}

// ---- double quantisation, group by group --------------------------------------------------------

// Blocks of group g of n elements: from 256 g on.
SNUG_HOST_DEVICE static inline int64_t Nf4GroupSize(int64_t n, int64_t g) {
  const int64_t left = Nf4Blocks(n) - g * kNf4Group;
  return left < kNf4Group ? left : kNf4Group;
}

SNUG_HOST_DEVICE static inline double Nf4GroupSum(const float* absmax, int64_t count) {
  double sum = 0.0;
  for (int64_t b = 0; b < count; ++b) sum += static_cast<double>(absmax[b]);
  return sum;
}

// Codes and scale of one group, from all blocks' absmax.
SNUG_HOST_DEVICE static inline void QuantizeNf4Group(const QuantizeNf4Params& p,
                                                     const DynamicMap& map, const float* absmax,
                                                     int64_t g) {
  const int64_t count = Nf4GroupSize(p.N * p.K, g);
  const float offset = *p.to.offset;
  uint8_t* codes = p.to.absmax_codes + g * kNf4Group;
  absmax += g * kNf4Group;
  float most = 0.0f;
  for (int64_t b = 0; b < count; ++b) {
    const float difference = absmax[b] - offset;
    const float magnitude = difference < 0.0f ? -difference : difference;
    most = magnitude > most ? magnitude : most;
  }
  p.to.absmax[g] = most;
  const float inverse = InverseOf(most);
  for (int64_t b = 0; b < count; ++b) {
    codes[b] = static_cast<uint8_t>(DynamicCode(map, (absmax[b] - offset) * inverse));
  }
}

}  // namespace snug::kernels

#endif  // KERNELS_NF4_LEVELS_H_
