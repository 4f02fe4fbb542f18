// Activations of one operand: y = h(x), and its backward from x, or from codes of x in one or two
// bits each (codes.h; CodeBackward is that backward).
//
//   kSilu      x s(x)                                s(z) = 1 / (1 + exp(-z))
//   kGeluTanh  x s(2 sqrt(2/pi) (x + 0.044715 x^3))  the tanh form (Hendrycks & Gimpel 2016)
//   kGelu      x Phi(x), Phi the normal distribution: 1/2 (1 + erf(x / sqrt 2))
//   kRelu      max(x, 0)
//   kTanh      tanh(x)
//
// Before rounding y is within 1e-6 |y| + 1e-7 of the exact value, h' within 1e-6 |h'| + 2e-7.
// At -infinity the first three are NaN, as LibTorch's are, not their limit 0: an infinity is not
// hidden.
#ifndef KERNELS_ACTIVATION_H_
#define KERNELS_ACTIVATION_H_

#include <cstdint>

#include "kernels/codes.h"
#include "kernels/types.h"

namespace snug::kernels {

enum class Activation : uint8_t { kSilu, kGeluTanh, kGelu, kRelu, kTanh };

// The thresholds and slopes that stand for an activation; nothing stands for tanh. ReLU's own
// derivative: of it codes 1 and 2 are all that finite elements have.
inline constexpr TwoBit TwoBitOf(Activation activation) {
  constexpr float kLargest = 3.402823466e38f;
  return activation == Activation::kSilu       ? kReSilu2
         : activation == Activation::kGeluTanh ? kReGeluTanh2
         : activation == Activation::kGelu     ? kReGelu2
         : activation == Activation::kTanh
             ? TwoBit{}
             : TwoBit{{-kLargest, 0.0f, kLargest}, {0.0f, 0.0f, 1.0f, 1.0f}};
}

// `y` may be `x`. Traffic: 2*N*C elements + N*C/4 bytes of codes, N*C/8 of a mask.
struct ActivationForwardParams {
  const void* x = nullptr;   // (N, C), dtype
  void* y = nullptr;         // (N, C), dtype
  uint8_t* codes = nullptr;  // (N, CodeBytes(C)), or null; by `two_bit`
  uint8_t* mask = nullptr;   // (N, MaskBytes(C)), or null; kRelu only: 1 where x > 0
  int64_t N = 0, C = 0;
  int64_t x_stride = 0, y_stride = 0, code_stride = 0, mask_stride = 0;
  DType dtype = DType::kF32;
  Activation activation = Activation::kSilu;
  TwoBit two_bit = {};  // Needed for codes: TwoBitOf(activation), or another fit.
};
Error ActivationForward(const ActivationForwardParams& p, Stream stream);

// dx = dy * h'(x). `dx` may be `dy` or `x`. Traffic: 3*N*C elements.
struct ActivationBackwardParams {
  const void* dy = nullptr;  // (N, C), dtype
  const void* x = nullptr;   // (N, C), dtype
  void* dx = nullptr;        // (N, C), dtype
  int64_t N = 0, C = 0;
  int64_t dy_stride = 0, x_stride = 0, dx_stride = 0;
  DType dtype = DType::kF32;
  Activation activation = Activation::kSilu;
};
Error ActivationBackward(const ActivationBackwardParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_ACTIVATION_H_
