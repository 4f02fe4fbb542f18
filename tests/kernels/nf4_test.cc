// NF4 weights: numbers of the definition, bytes worked out by hand, and a reference in double.
#include "kernels/nf4.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/nf4_levels.h"
#include "tests/kernels/frozen_testing.h"

namespace snug::kernels {
namespace {

// The x with P(Z > x) = p, by bisection.
double UpperQuantile(double p) {
  double low = 0.0, high = 10.0;
  for (int k = 0; k < 100; ++k) {
    const double middle = (low + high) / 2.0;
    (0.5 * std::erfc(middle / std::sqrt(2.0)) > p ? low : high) = middle;
  }
  return low;
}

// QLoRA, appendix E: 8 quantiles above 0 and 7 below, evenly from 0.9677083 to 1/2.
TEST(Nf4Test, LevelsAreQuantilesOfTheNormalDistribution) {
  constexpr double kMost = 0.9677083;
  const double largest = UpperQuantile(1.0 - kMost);
  for (int k = 0; k < 8; ++k) {
    const double p = 1.0 - (0.5 + (kMost - 0.5) * (k + 1) / 8.0);
    EXPECT_NEAR(kNf4Levels.at[8 + k], UpperQuantile(p) / largest, 2e-6);
  }
  for (int k = 0; k < 7; ++k) {
    const double p = 1.0 - (0.5 + (kMost - 0.5) * (7 - k) / 7.0);
    EXPECT_NEAR(kNf4Levels.at[k], -UpperQuantile(p) / largest, 2e-6);
  }
  EXPECT_EQ(kNf4Levels.at[kNf4Zero], 0.0f);
  for (int k = 0; k < 15; ++k) {
    EXPECT_NEAR(kNf4Bounds.at[k], (kNf4Levels.at[k] + double{kNf4Levels.at[k + 1]}) / 2.0, 6e-8);
  }
}

// The map in double; its fp32 entries are at most two roundings off. Every entry finds itself.
TEST(Nf4Test, DynamicMapFollowsItsDefinition) {
  int entry = 0;
  for (int decade = 0; decade < 7; ++decade) {
    for (int k = 0; k < 1 << decade; ++k) {
      const double exact = std::pow(10.0, decade - 6) * (0.1 + 0.9 * (k + 0.5) / (1 << decade));
      EXPECT_NEAR(kDynamicMap.above[entry++] / exact, 1.0, 0x1p-22);
    }
  }
  ASSERT_EQ(entry, 127);
  for (uint32_t code = 0; code < 256; ++code) {
    const float value = DynamicValue(kDynamicMap, code);
    EXPECT_EQ(DynamicCode(kDynamicMap, value), code);
    if (code > 0) {
      EXPECT_GT(value, DynamicValue(kDynamicMap, code - 1));
    }
  }
  EXPECT_EQ(DynamicCode(kDynamicMap, -1.0f), 0u);
}

// Worked out by hand from the definition: absmax is 2, so codes are those of half the values.
TEST(Nf4Test, BytesByHand) {
  Matrix w(1, 67);
  for (int64_t c = 0; c < 67; ++c) w.Set(0, c, 0.0);
  const double values[] = {2.0, -2.0, 1.0, 0.0, 0.16, -0.18, 0.85, -1.0};
  for (int64_t c = 0; c < 8; ++c) w.Set(0, c, values[c]);
  w.Set(0, 65, -3.0);
  w.Set(0, 66, 2.0);
  Nf4Memory memory(67, false);
  ASSERT_TRUE(memory.Quantize(w).ok());
  WaitForKernels();
  // 1 -> 15, -1 -> 0, 0.5 -> 12, 0 -> 7, 0.08 -> 8, -0.09 -> 6, 0.425 -> 12, -0.5 -> 2
  const uint8_t first[] = {0xF0, 0xC7, 0x86, 0xC2, 0x77};
  for (int k = 0; k < 5; ++k) EXPECT_EQ(memory.codes[1 + k], first[k]) << k;
  // The second block: 0, -1, 2/3 -> 14, and behind it 7.
  EXPECT_EQ(memory.codes[1 + 32], 0x70);
  EXPECT_EQ(memory.codes[1 + 33], 0xE7);
  EXPECT_EQ(memory.absmax[0], 2.0f);
  EXPECT_EQ(memory.absmax[1], 3.0f);
  EXPECT_TRUE(memory.GapsUntouched());
  Matrix back(1, 67);
  ASSERT_TRUE(memory.Dequantize(back).ok());
  EXPECT_EQ(back.At(0, 0), 2.0);
  EXPECT_EQ(back.At(0, 2), static_cast<double>(0.44070982933044434f * 2.0f));
  EXPECT_EQ(back.At(0, 3), 0.0);
  EXPECT_EQ(back.At(0, 66), static_cast<double>(0.7229568362236023f * 3.0f));
}

// What lies on the border of two levels becomes the lower one, by the rule and by the op; the next
// number above it the upper one.
TEST(Nf4Test, TiesGoToTheLowerLevel) {
  Matrix w(1, 64);
  for (int64_t c = 0; c < 64; ++c) w.Set(0, c, 0.0);
  w.Set(0, 63, 1.0);  // absmax
  for (int k = 0; k < 15; ++k) {
    const float bound = kNf4Bounds.at[k], above = std::nextafter(bound, 2.0f);
    EXPECT_EQ(Nf4Code(kNf4Bounds, bound), static_cast<uint32_t>(k));
    EXPECT_EQ(Nf4Code(kNf4Bounds, above), static_cast<uint32_t>(k + 1));
    w.Set(0, 2 * k, bound);
    w.Set(0, 2 * k + 1, above);
  }
  OnEachInstructionSet([&] {
    Nf4Memory memory(64, false);
    ASSERT_TRUE(memory.Quantize(w).ok());
    WaitForKernels();
    for (int k = 0; k < 15; ++k) {
      EXPECT_EQ(memory.codes[static_cast<size_t>(1 + k)], k << 4 | (k + 1)) << k;
    }
  });
}

// Of the dynamic map, too: the middle of two entries is the lower one's.
TEST(Nf4Test, TiesOfTheDynamicMapGoToTheLowerEntry) {
  for (uint32_t code = 0; code < 255; ++code) {
    const float low = DynamicValue(kDynamicMap, code), high = DynamicValue(kDynamicMap, code + 1);
    const float middle = (low + high) * 0.5f;
    EXPECT_EQ(DynamicCode(kDynamicMap, middle), code);
    EXPECT_EQ(DynamicCode(kDynamicMap, std::nextafter(middle, 2.0f)), code + 1);
  }
}

// absmax 1, 3, 2: offset 2, differences -1, 1, 0, scale 1; the map has 1 but not -1.
TEST(Nf4Test, DoubleQuantisationByHand) {
  Matrix w(1, 192);
  for (int64_t c = 0; c < 192; ++c) w.Set(0, c, 0.0);
  w.Set(0, 5, -1.0);
  w.Set(0, 70, 3.0);
  w.Set(0, 191, 2.0);
  Nf4Memory memory(192, true);
  ASSERT_TRUE(memory.Quantize(w).ok());
  WaitForKernels();
  EXPECT_EQ(memory.offset[0], 2.0f);
  EXPECT_EQ(memory.absmax[0], 1.0f);
  EXPECT_EQ(memory.absmax_codes, (Bytes{0, 255, 127}));
  Matrix back(1, 192);
  ASSERT_TRUE(memory.Dequantize(back).ok());
  EXPECT_NEAR(back.At(0, 5), -1.00703125, 2e-7);
  EXPECT_EQ(back.At(0, 70), 3.0);
  EXPECT_EQ(back.At(0, 191), 2.0);
  EXPECT_EQ(back.At(0, 0), 0.0);
}

// Zeros beside others: their absmax comes back as something else, their values do not.
TEST(Nf4Test, ZerosStayZeros) {
  for (bool nested : {false, true}) {
    Matrix w(3, 64), back(3, 64);
    w.Fill(3);
    for (int64_t c = 0; c < 64; ++c) w.Set(1, c, 0.0);
    Nf4Memory memory(192, nested);
    ASSERT_TRUE(memory.Quantize(w).ok());
    ASSERT_TRUE(memory.Dequantize(back).ok());
    for (int64_t c = 0; c < 64; ++c) EXPECT_EQ(back.At(1, c), 0.0);
  }
}

// Values from bytes, in double, by the definition.
double Decoded(const Nf4Memory& m, int64_t e) {
  const int64_t block = e / 64;
  double absmax = m.absmax[m.nested ? block / 256 : block];
  if (m.nested) {
    absmax = absmax * DynamicValue(kDynamicMap, m.absmax_codes[block]) + double{m.offset[0]};
  }
  return double{kNf4Levels.at[m.code(e)]} * absmax;
}

void ExpectNearestCodes(const Matrix& w, const Nf4Memory& m) {
  const int64_t n = w.N() * w.C();
  const std::vector<double> dense = Dense(w);
  for (int64_t begin = 0; begin < n; begin += 64) {
    const int64_t end = std::min(begin + 64, n);
    double absmax = 0.0;
    for (int64_t e = begin; e < end; ++e) absmax = std::max(absmax, std::abs(dense[e]));
    if (!m.nested) {
      EXPECT_EQ(m.absmax[begin / 64], static_cast<float>(absmax));
    }
    for (int64_t e = begin; e < end; ++e) {
      double best = 2.0;
      for (float level : kNf4Levels.at) best = std::min(best, std::abs(dense[e] / absmax - level));
      const double mine = std::abs(dense[e] / absmax - kNf4Levels.at[m.code(e)]);
      ASSERT_LE(mine, best + 1e-6) << e;
    }
  }
}

// Awkward widths: rows that share a block, odd ones that share a byte, more than one group.
TEST(Nf4Test, MatchesReference) {
  struct Shape {
    int64_t N, K;
  };
  for (const Shape& s : {Shape{1, 1}, Shape{3, 31}, Shape{3, 33}, Shape{33, 127}, Shape{2, 64},
                         Shape{5, 200}, Shape{9, 2048}, Shape{5, 4097}}) {
    for (DType dtype : kTypes) {
      for (bool nested : {false, true}) {
        SCOPED_TRACE(testing::Message() << s.N << " x " << s.K << (nested ? " nested" : ""));
        Matrix w(s.N, s.K, dtype), back(s.N, s.K, dtype);
        w.Fill(static_cast<uint32_t>(s.K), 0.02);
        Nf4Memory memory(s.N * s.K, nested);
        ASSERT_TRUE(memory.Quantize(w).ok());
        WaitForKernels();
        ExpectNearestCodes(w, memory);
        EXPECT_TRUE(memory.GapsUntouched());
        ASSERT_TRUE(memory.Dequantize(back).ok());
        ExpectClose(back,
                    Map(back, [&](int64_t i, int64_t c) { return Decoded(memory, i * s.K + c); }));
      }
    }
  }
}

// absmax in 8 bits is off by at most half a gap of the map, of what the group spans.
TEST(Nf4Test, DoubleQuantisationKeepsAbsmax) {
  Matrix w(40, 1024);
  w.Fill(8);
  Nf4Memory plain(40 * 1024, false), nested(40 * 1024, true);
  ASSERT_TRUE(plain.Quantize(w).ok());
  ASSERT_TRUE(nested.Quantize(w).ok());
  WaitForKernels();
  EXPECT_EQ(plain.codes, nested.codes);
  double sum = 0.0;
  for (float absmax : plain.absmax) sum += absmax / 640.0;
  EXPECT_NEAR(nested.offset[0], sum, 1e-6);
  for (int64_t block = 0; block < 640; ++block) {
    const double scale = nested.absmax[block / 256];
    const double back =
        scale * DynamicValue(kDynamicMap, nested.absmax_codes[block]) + nested.offset[0];
    EXPECT_NEAR(back, plain.absmax[block], scale * 0.9 / 128.0 + 1e-6);
  }
}

// Rows of W^T (one a channel of the input) times gamma > 0, in blocks along the row: the codes
// stay, absmax takes the factor. Factors are powers of two, so that nothing is rounded. Negative
// control: a factor below 0 changes codes.
TEST(Nf4Test, Norm9PositiveFactorsOfRowsKeepCodes) {
  Matrix w(16, 128), scaled(16, 128), turned(16, 128);
  w.Fill(12);
  for (int64_t i = 0; i < 16; ++i) {
    for (int64_t c = 0; c < 128; ++c) {
      scaled.Set(i, c, std::ldexp(w.At(i, c), static_cast<int>(i) - 8));
      turned.Set(i, c, -w.At(i, c));
    }
  }
  Nf4Memory plain(2048, false), merged(2048, false), negative(2048, false);
  ASSERT_TRUE(plain.Quantize(w).ok());
  ASSERT_TRUE(merged.Quantize(scaled).ok());
  ASSERT_TRUE(negative.Quantize(turned).ok());
  WaitForKernels();
  EXPECT_EQ(plain.codes, merged.codes);
  EXPECT_NE(plain.codes, negative.codes);
  for (int64_t block = 0; block < 32; ++block) {
    const int exponent = static_cast<int>(block / 2) - 8;
    EXPECT_EQ(merged.absmax[block], std::ldexp(plain.absmax[block], exponent));
  }
}

TEST(Nf4Test, SameBytesOnTheCpuAndOnCuda) {
  Matrix w(37, 1031, DType::kBF16);
  w.Fill(9);
  Nf4Memory here(37 * 1031, true), there(37 * 1031, true);
  ASSERT_TRUE(here.Quantize(w, nullptr).ok());
  ASSERT_TRUE(there.Quantize(w).ok());
  WaitForKernels();
  EXPECT_EQ(here.codes, there.codes);
  EXPECT_EQ(here.absmax_codes, there.absmax_codes);
  EXPECT_EQ(here.absmax, there.absmax);
  EXPECT_EQ(here.offset, there.offset);
}

TEST(Nf4Test, SameBitsEveryWay) {
  Matrix w(37, 1031);
  w.Fill(10);
  ExpectSameBitsEveryWay([&] {
    Nf4Memory memory(37 * 1031, true);
    EXPECT_TRUE(memory.Quantize(w).ok());
    Matrix back(37, 1031, DType::kF16);
    EXPECT_TRUE(memory.Dequantize(back).ok());
    Bytes bytes = memory.codes;
    bytes.insert(bytes.end(), back.bytes().begin(), back.bytes().end());
    return bytes;
  });
}

TEST(Nf4Test, BytesPerElement) {
  constexpr int64_t kElements = int64_t{4096} * 4096;
  EXPECT_NEAR(8.0 * static_cast<double>(Nf4Bytes(kElements, true)) / kElements, 4.127, 1e-3);
  EXPECT_EQ(Nf4Bytes(kElements, false), kElements / 2 + kElements / 16);
}

TEST(Nf4Test, RefusesBadArguments) {
  Matrix w(3, 33);
  w.Fill(1);
  Nf4Memory memory(99, true);
  const Bytes before = memory.codes;
  const auto refused = [&](auto change) {
    QuantizeNf4Params p = {.w = w.data(),
                           .to = memory.weight(),
                           .N = 3,
                           .K = 33,
                           .w_stride = w.stride(),
                           .workspace = memory.workspace.data()};
    change(p);
    return Name(QuantizeNf4(p, TestStream()));
  };
  using P = QuantizeNf4Params;
  EXPECT_EQ(refused([](P& p) { p.w = nullptr; }), "null pointer: w");
  EXPECT_EQ(refused([](P& p) { p.to.codes = nullptr; }), "null pointer: codes");
  EXPECT_EQ(refused([](P& p) { p.to.absmax = nullptr; }), "null pointer: absmax");
  EXPECT_EQ(refused([](P& p) { p.to.offset = nullptr; }), "null pointer: offset");
  EXPECT_EQ(refused([](P& p) { p.workspace = nullptr; }), "null pointer: workspace");
  EXPECT_EQ(refused([](P& p) { p.w_stride = 3; }), "bad stride: w_stride");
  EXPECT_EQ(refused([](P& p) { p.K = 0; }), "bad shape: K");
  EXPECT_EQ(refused([](P& p) { p.N = -1; }), "bad shape: N");
  EXPECT_EQ(refused([](P& p) { p.dtype = static_cast<DType>(5); }), "bad dtype: dtype");
  const Bytes w_before = w.bytes();
  DequantizeNf4Params d = {.from = memory.weight(), .w = w.data(), .N = 3, .K = 33, .w_stride = 1};
  EXPECT_EQ(Name(DequantizeNf4(d, TestStream())), "bad stride: w_stride");
  EXPECT_EQ(memory.codes, before);
  EXPECT_EQ(w.bytes(), w_before);
}

}  // namespace
}  // namespace snug::kernels
