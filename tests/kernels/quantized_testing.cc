// Tensors of codes for tests.
#include "tests/kernels/quantized_testing.h"

#include <algorithm>
#include <vector>

namespace snug::kernels {
namespace {

constexpr uint8_t kGap = 0xA5;

double Upper(bf16 x) { return FloatOfBits(uint32_t{x.bits} << 16); }

}  // namespace

Coded::Coded(int64_t N, int64_t C, CodeBits bits, RangeKind kind, const Grouping& grouping)
    : N_(N),
      C_(C),
      stride_(C % 8 == 0 ? CodeBytes(C, bits) + 8 : (CodeBytes(C, bits) + 2) | 1),
      offset_(C % 8 == 0 ? 16 : 1),
      bits_(bits),
      kind_(kind),
      grouping_(grouping) {
  codes_.assign(offset_ + N * stride_ + 1, kGap);
  for (int64_t i = 0; i < N; ++i)
    LeaveUnwritten(codes_.data() + offset_ + i * stride_, static_cast<size_t>(CodeBytes(C, bits)));
  ranges_ = Bytes(static_cast<size_t>(RangeBytes(q(), N, C)));
}

Quantized Coded::q() {
  return {.codes = codes_.data() + offset_,
          .ranges = ranges_.data(),
          .codes_stride = stride_,
          .bits = bits_,
          .kind = kind_,
          .grouping = grouping_};
}

int Coded::code(int64_t i, int64_t c) const {
  WaitForKernels();
  const uint8_t* row = codes_.data() + offset_ + i * stride_;
  if (bits_ == CodeBits::k8) return row[c];
  return c % 2 == 0 ? row[c / 2] & 15 : row[c / 2] >> 4;
}

Range32 Coded::range(int64_t i, int64_t c) const {
  WaitForKernels();
  if (kind_ == RangeKind::kBlocks) {
    const int64_t blocks = (C_ + 127) / 128;
    const Range16 r = reinterpret_cast<const Range16*>(ranges_.data())[i * blocks + c / 128];
    return {static_cast<float>(Upper(r.step)), static_cast<float>(Upper(r.low))};
  }
  const int64_t width = grouping_.group_columns == 0 ? C_ : grouping_.group_columns;
  const int64_t row_group = (i / grouping_.run_rows) % grouping_.row_groups;
  return reinterpret_cast<const Range32*>(ranges_.data())[row_group * (C_ / width) + c / width];
}

double Coded::value(int64_t i, int64_t c) const {
  const Range32 r = range(i, c);
  return static_cast<double>(r.low) + static_cast<double>(r.step) * code(i, c);
}

bool Coded::GapsUntouched() const {
  WaitForKernels();
  std::vector<bool> used(codes_.size(), false);
  for (int64_t i = 0; i < N_; ++i) {
    std::fill_n(used.begin() + offset_ + i * stride_, CodeBytes(C_, bits_), true);
  }
  for (size_t byte = 0; byte < codes_.size(); ++byte) {
    if (!used[byte] && codes_[byte] != kGap) return false;
  }
  return true;
}

Bytes Coded::bytes() const {
  WaitForKernels();
  Bytes all = codes_;
  all.insert(all.end(), ranges_.begin(), ranges_.end());
  return all;
}

double UniformOf(const RandomSite& site, int64_t row, int64_t C, int64_t c) {
  const uint64_t block = row * ((C + 127) / 128) * 16 + c / 8;
  const uint32_t word = RandomBlock(site, block).word[c % 8 / 2];
  return (c % 2 == 0 ? word % 65536 : word / 65536) / 65536.0;
}

Error QuantizeInto(const Matrix& x, Coded& codes, Rounding rounding, const RandomSite& site,
                   Stream stream) {
  return Quantize({.x = x.data(),
                   .to = codes.q(),
                   .N = x.N(),
                   .C = x.C(),
                   .x_stride = x.stride(),
                   .dtype = x.dtype(),
                   .dither = {.rounding = rounding, .site = site}},
                  stream);
}

Error DequantizeFrom(Coded& codes, Matrix& y) {
  return Dequantize({.from = codes.q(),
                     .y = y.data(),
                     .N = y.N(),
                     .C = y.C(),
                     .y_stride = y.stride(),
                     .dtype = y.dtype()},
                    TestStream());
}

}  // namespace snug::kernels
