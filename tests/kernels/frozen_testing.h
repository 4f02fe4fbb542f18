// Frozen weights of tests: memory for their codes.
#ifndef TESTS_KERNELS_FROZEN_TESTING_H_
#define TESTS_KERNELS_FROZEN_TESTING_H_

#include <cstdint>

#include "kernels/int8_weight.h"
#include "kernels/nf4.h"
#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {

// Of a call that reads or writes all of w: its sizes and type.
template <typename Params>
Params ParamsOf(const Matrix& w) {
  Params p;
  p.N = w.N();
  p.K = w.C();
  p.w_stride = w.stride();
  p.dtype = w.dtype();
  return p;
}

// All of it begins as 0xA5, and a byte of that lies before and behind the codes.
struct Nf4Memory {
  Bytes codes;
  SharedVector<float> absmax, offset;
  Bytes absmax_codes;
  SharedVector<double> workspace;
  bool nested;

  Nf4Memory(int64_t n, bool is_nested)
      : codes(Nf4CodeBytes(n) + 2, 0xA5),
        absmax(is_nested ? Nf4Groups(n) : Nf4Blocks(n), -9.0f),
        offset(1, -9.0f),
        absmax_codes(Nf4Blocks(n), 0xA5),
        workspace(QuantizeNf4Workspace(n) / 8 + 1),
        nested(is_nested) {}

  Nf4Weight weight() {
    return {.codes = codes.data() + 1,
            .absmax = absmax.data(),
            .absmax_codes = nested ? absmax_codes.data() : nullptr,
            .offset = nested ? offset.data() : nullptr};
  }
  bool GapsUntouched() const { return codes.front() == 0xA5 && codes.back() == 0xA5; }
  int code(int64_t e) const {
    const uint8_t byte = codes[1 + e / 2];
    return e % 2 == 0 ? byte >> 4 : byte & 15;
  }

  Error Quantize(const Matrix& w, Stream stream = TestStream()) {
    auto p = ParamsOf<QuantizeNf4Params>(w);
    p.w = w.data();
    p.to = weight();
    p.workspace = workspace.data();
    return QuantizeNf4(p, stream);
  }
  Error Dequantize(Matrix& w) {
    auto p = ParamsOf<DequantizeNf4Params>(w);
    p.from = weight();
    p.w = w.data();
    return DequantizeNf4(p, TestStream());
  }
};

struct Int8Memory {
  int64_t stride;
  SharedVector<int8_t> codes;
  SharedVector<float> absmax;

  Int8Memory(int64_t N, int64_t K)
      : stride(K % 8 == 0 ? K + 8 : (K + 3) | 1), codes(N * stride + 8, 0x5A), absmax(N, -9.0f) {}

  Int8Weight weight() {
    const int64_t offset = stride % 8 == 0 ? 0 : 1;
    return {.codes = codes.data() + offset, .absmax = absmax.data(), .codes_stride = stride};
  }
  Error Quantize(const Matrix& w, Stream stream = TestStream()) {
    auto p = ParamsOf<QuantizeInt8WeightParams>(w);
    p.w = w.data();
    p.to = weight();
    return QuantizeInt8Weight(p, stream);
  }
  Error Dequantize(Matrix& w) {
    auto p = ParamsOf<DequantizeInt8WeightParams>(w);
    p.from = weight();
    p.w = w.data();
    return DequantizeInt8Weight(p, TestStream());
  }
};

}  // namespace snug::kernels

#endif  // TESTS_KERNELS_FROZEN_TESTING_H_
