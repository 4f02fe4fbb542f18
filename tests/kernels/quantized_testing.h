// What tests of quantised tensors share.
#ifndef TESTS_KERNELS_QUANTIZED_TESTING_H_
#define TESTS_KERNELS_QUANTIZED_TESTING_H_

#include <cstdint>

#include "kernels/quantize.h"
#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {

inline constexpr RandomSite kQuantizeSite = {
    .seed = 0x123456789abcdef0, .step = 5, .micro_batch = 2, .op = 77};

// An (N, C) tensor of codes with its ranges; both begin as 0xA5, and rows lie badly: a byte off
// alignment and an odd stride apart, or 8 bytes aligned where C is a multiple of 8.
class Coded {
 public:
  Coded(int64_t N, int64_t C, CodeBits bits, RangeKind kind = RangeKind::kBlocks,
        const Grouping& grouping = {});

  Quantized q();  // What ops are given.
  int code(int64_t i, int64_t c) const;
  Range32 range(int64_t i, int64_t c) const;  // Of an element.
  double value(int64_t i, int64_t c) const;   // low + step * code
  double levels() const { return bits_ == CodeBits::k8 ? 255.0 : 15.0; }
  Range32* groups() { return reinterpret_cast<Range32*>(ranges_.data()); }

  bool GapsUntouched() const;
  // Codes (with their gaps) and ranges.
  Bytes bytes() const;

 private:
  int64_t N_, C_, stride_, offset_;
  CodeBits bits_;
  RangeKind kind_;
  Grouping grouping_;
  Bytes codes_, ranges_;
};

// Which half of which word header quantize.h gives an element, as a number in [0, 1).
double UniformOf(const RandomSite& site, int64_t row, int64_t C, int64_t c);

Error QuantizeInto(const Matrix& x, Coded& codes, Rounding rounding = Rounding::kStochastic,
                   const RandomSite& site = kQuantizeSite, Stream stream = TestStream());
Error DequantizeFrom(Coded& codes, Matrix& y);

}  // namespace snug::kernels

#endif  // TESTS_KERNELS_QUANTIZED_TESTING_H_
