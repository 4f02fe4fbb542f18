// What the tests of activations share: values and slopes in double, as papers and transformers
// write them, not as the kernels do; rows of codes; the codes' reference in integers.
#ifndef TESTS_KERNELS_ACTIVATION_TESTING_H_
#define TESTS_KERNELS_ACTIVATION_TESTING_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/activation.h"
#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {

inline constexpr Activation kActivations[] = {Activation::kSilu, Activation::kGeluTanh,
                                              Activation::kGelu, Activation::kRelu};
inline constexpr Activation kWithTanh[] = {Activation::kSilu, Activation::kGeluTanh,
                                           Activation::kGelu, Activation::kRelu, Activation::kTanh};
inline constexpr Activation kSmooth[] = {Activation::kSilu, Activation::kGeluTanh,
                                         Activation::kGelu};

inline double SigmoidIn64(double z) { return 1.0 / (1.0 + std::exp(-z)); }

inline double ValueIn64(Activation activation, double x) {
  switch (activation) {
    case Activation::kSilu:
      return x * SigmoidIn64(x);
    case Activation::kGeluTanh:
      return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kGelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));  // 1 + erf, without cancellation.
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kRelu:
      break;
  }
  return std::max(x, 0.0);
}

inline double SlopeIn64(Activation activation, double x) {
  switch (activation) {
    case Activation::kSilu:
      return SigmoidIn64(x) * (1.0 + x * SigmoidIn64(-x));
    case Activation::kGeluTanh: {
      const double k = std::sqrt(2.0 / M_PI), z = k * (x + 0.044715 * x * x * x);
      const double one_plus = 2.0 * SigmoidIn64(2.0 * z);  // 1 + tanh z, without cancellation.
      const double square = 1.0 / (std::cosh(z) * std::cosh(z));
      return 0.5 * one_plus + 0.5 * x * square * k * (1.0 + 3.0 * 0.044715 * x * x);
    }
    case Activation::kGelu:
      return 0.5 * std::erfc(-x / std::sqrt(2.0)) +
             x * std::exp(-0.5 * x * x) / std::sqrt(2.0 * M_PI);
    case Activation::kTanh:
      return 1.0 / (std::cosh(x) * std::cosh(x));
    case Activation::kRelu:
      break;
  }
  return x > 0.0 ? 1.0 : 0.0;
}

// Rows of codes or of a mask, a byte apart from one another, with a pattern around them.
class CodeRows {
 public:
  CodeRows(int64_t N, int64_t C, int bits)
      : N_(N), C_(C), bits_(bits), stride_((C * bits + 7) / 8 + 1), bytes_(N * stride_ + 2, kGap) {}

  uint8_t* data() { return bytes_.data() + 1; }
  int64_t stride() const { return stride_; }
  int At(int64_t i, int64_t c) const {
    WaitForKernels();
    return bytes_[1 + i * stride_ + c * bits_ / 8] >> c * bits_ % 8 & ((1 << bits_) - 1);
  }
  // Nothing was written between rows, and nothing but 0 behind a row's last element.
  bool GapsUntouched() const {
    bool clean = bytes_.front() == kGap && bytes_.back() == kGap;
    for (int64_t i = 0; i < N_; ++i) {
      clean = clean && bytes_[1 + (i + 1) * stride_ - 1] == kGap;
      for (int64_t c = C_; c * bits_ % 8 != 0; ++c) clean = clean && At(i, c) == 0;
    }
    return clean;
  }
  const Bytes& bytes() const {
    WaitForKernels();
    return bytes_;
  }

 private:
  static constexpr uint8_t kGap = 0xA5;
  int64_t N_, C_;
  int bits_;
  int64_t stride_;
  Bytes bytes_;
};

// The code of a number by the definition; of a NaN 0, for it is above nothing.
inline int CodeOf(double x, const TwoBit& two_bit) {
  int code = 0;
  for (float threshold : two_bit.threshold) code += x > static_cast<double>(threshold) ? 1 : 0;
  return code;
}

inline ActivationForwardParams Forward(Matrix& x, Matrix& y, Activation activation) {
  return {.x = x.data(),
          .y = y.data(),
          .N = x.N(),
          .C = x.C(),
          .x_stride = x.stride(),
          .y_stride = y.stride(),
          .dtype = x.dtype(),
          .activation = activation,
          .two_bit = TwoBitOf(activation)};
}

}  // namespace snug::kernels

#endif  // TESTS_KERNELS_ACTIVATION_TESTING_H_
