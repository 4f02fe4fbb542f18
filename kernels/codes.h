// What backward needs of an element when its gradient takes few values: a code of one or two bits
// in the place of a stored tensor, and the slope that each code stands for.
//
// Two bits (LowMemoryBP, arXiv 2406.16282, section 3): forward is exact; the slope in backward is
// that of a sum of three ReLUs, which is close to the activation.
//   code(x) = [x > t0] + [x > t1] + [x > t2]        dx = dy * slope[code]
// A NaN has code 0. One bit (ReLU, dropout): 1 where the element, or its gradient, goes on.
//
// Layout: each row has its own bytes, rows `..._stride` bytes apart; the code of column c is in
// byte c / 4 from bit 2 (c % 4) on (c / 8 and c % 8 for one bit), the least significant first; bits
// beyond the row are 0. Of rows that divide by 4 without gaps this is the layout of the flattened
// tensor. The same bytes on the CPU and on CUDA.
#ifndef KERNELS_CODES_H_
#define KERNELS_CODES_H_

#include <cstdint>

#include "kernels/types.h"

namespace snug::kernels {

inline constexpr int64_t CodeBytes(int64_t C) { return (C + 3) / 4; }
inline constexpr int64_t MaskBytes(int64_t C) { return (C + 7) / 8; }

// Three ReLUs; thresholds ascend.
struct TwoBit {
  float threshold[3];
  float slope[4];
};

// As the paper's kernels have them.
inline constexpr TwoBit kReGelu2 = {
    {-3.1858810036855245f, -0.001178821281161997f, 3.190832613414926f},
    {0.0f, -0.04922261145617846f, 1.0487405950855513f, 1.0f}};
inline constexpr TwoBit kReSilu2 = {
    {-6.3050461001646445f, -0.0008684942046214787f, 6.325815242089708f},
    {0.0f, -0.04060357190528599f, 1.0403218566243821f, 1.0f}};

// Thresholds -t, 0, t and slopes 0, -a, 1 + a, 1, fitted by kernels/fit_two_bit.py: the tanh form
// of GELU, which the paper has not, and, for whom symmetry matters, the other two at their optimum
// (the paper's are within 0.03 % of its energy).
inline constexpr TwoBit SymmetricTwoBit(double t, double a) {
  return {{static_cast<float>(-t), 0.0f, static_cast<float>(t)},
          {0.0f, static_cast<float>(-a), static_cast<float>(1.0 + a), 1.0f}};
}
inline constexpr TwoBit kReGeluTanh2 = SymmetricTwoBit(3.1628800, 0.0497861);
inline constexpr TwoBit kReGelu2Symmetric = SymmetricTwoBit(3.1713098, 0.0495752);
inline constexpr TwoBit kReSilu2Symmetric = SymmetricTwoBit(6.3199335, 0.0405243);

// dx (+)= dy * slope[code]. `dx` may be `dy` (not with accumulate). Forward of dropout from a mask
// is the same. Traffic: 2*N*C elements (3 with accumulate) + N*C * bits / 8 bytes.
struct CodeBackwardParams {
  const void* dy = nullptr;        // (N, C), dtype
  const uint8_t* codes = nullptr;  // (N, CodeBytes(C)), or with one bit (N, MaskBytes(C))
  void* dx = nullptr;              // (N, C), dtype
  int64_t N = 0, C = 0;
  int64_t dy_stride = 0, code_stride = 0, dx_stride = 0;
  DType dtype = DType::kF32;
  int bits = 2;         // 1 or 2
  float slope[4] = {};  // By code; with one bit the first two. NaN * 0 is NaN.
  bool accumulate = false;
};
Error CodeBackward(const CodeBackwardParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_CODES_H_
