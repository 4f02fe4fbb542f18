// Codes in 8 and 4 bits: against the definition in double, by hand-worked examples, by statistics.
// Tests are named by the oracles of the method (MESA-n) that they are.
#include "kernels/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/kernels/quantized_testing.h"

namespace snug::kernels {
namespace {

constexpr CodeBits kBits[] = {CodeBits::k8, CodeBits::k4};

Matrix Normal(int64_t N, int64_t C, uint32_t seed, DType dtype = DType::kF32) {
  Matrix x(N, C, dtype);
  x.Fill(seed);
  return x;
}

// One group over the whole tensor, of this range.
Coded OneGroup(int64_t N, int64_t C, Range32 range, CodeBits bits = CodeBits::k8) {
  Coded codes(N, C, bits, RangeKind::kGroups);
  *codes.groups() = range;
  return codes;
}

// Every code against the definition: v = (x - low) / step + u may lie 2e-4 beside the code's cell,
// which is what 24 bits leave of it. The range holds the block and is no wider than bf16 makes it.
void ExpectCodesOf(const Matrix& x, const Coded& codes) {
  for (int64_t i = 0; i < x.N(); ++i) {
    for (int64_t c = 0; c < x.C(); ++c) {
      const Range32 r = codes.range(i, c);
      const double steps = r.step == 0.0f ? 0.0 : (x.At(i, c) - r.low) / r.step;
      const double v = steps + UniformOf(kQuantizeSite, i, x.C(), c);
      const double low = std::clamp(std::floor(v - 2e-4), 0.0, codes.levels());
      const double high = std::clamp(std::floor(v + 2e-4), 0.0, codes.levels());
      ASSERT_TRUE(codes.code(i, c) >= low && codes.code(i, c) <= high)
          << "element (" << i << ", " << c << "): code " << codes.code(i, c) << " for " << v;
    }
  }
}

void ExpectRangesOf(const Matrix& x, const Coded& codes) {
  for (int64_t i = 0; i < x.N(); ++i) {
    for (int64_t block = 0; block < x.C(); block += 128) {
      double min = x.At(i, block), max = min;
      for (int64_t c = block; c < std::min(block + 128, x.C()); ++c) {
        min = std::min(min, x.At(i, c));
        max = std::max(max, x.At(i, c));
      }
      const Range32 r = codes.range(i, block);
      EXPECT_LE(r.low, min);
      EXPECT_GE(r.low, min - 0x1p-7 * std::abs(min));
      EXPECT_GE(r.low + codes.levels() * r.step, max - 1e-6 * std::abs(max));
      EXPECT_LE(codes.levels() * r.step, (1 + 0x1p-7) * (max - r.low) + 1e-30);
    }
  }
}

// MESA-10 for two dimensions: awkward widths, both layouts of the test's matrices, all types.
TEST(QuantizeTest, Mesa10BlocksMatchTheDefinition) {
  for (CodeBits bits : kBits) {
    for (DType dtype : kTypes) {
      for (int64_t C : {1, 31, 33, 127, 128, 129, 200, 4097}) {
        SCOPED_TRACE(testing::Message() << C << " columns, dtype " << static_cast<int>(dtype));
        const Matrix x = Normal(3, C, 1 + static_cast<uint32_t>(C), dtype);
        Coded codes(3, C, bits);
        ASSERT_TRUE(QuantizeInto(x, codes).ok());
        EXPECT_TRUE(codes.GapsUntouched());
        ExpectCodesOf(x, codes);
        ExpectRangesOf(x, codes);
        Matrix y(3, C, dtype);
        ASSERT_TRUE(DequantizeFrom(codes, y).ok());
        ExpectClose(y, Map(y, [&](int64_t i, int64_t c) { return codes.value(i, c); }));
      }
    }
  }
}

// Groups of 1, 5, 64 and all columns; runs of rows. The ranges are given.
TEST(QuantizeTest, Mesa10GroupsMatchTheDefinition) {
  struct Case {
    int64_t N, C;
    Grouping grouping;
  };
  for (const Case& t : {Case{3, 320, {.group_columns = 64}}, Case{3, 35, {.group_columns = 5}},
                        Case{2, 9, {.group_columns = 1}}, Case{12, 33, {3, 2, 11}},
                        Case{10, 197, {.run_rows = 4, .row_groups = 3}}}) {
    for (CodeBits bits : kBits) {
      const Matrix x = Normal(t.N, t.C, 7);
      Coded codes(t.N, t.C, bits, RangeKind::kGroups, t.grouping);
      for (int64_t g = 0; g < GroupsOf(t.grouping, t.C); ++g) {
        codes.groups()[g] = {0.1f + 0.01f * static_cast<float>(g), -2.0f};
      }
      ASSERT_TRUE(QuantizeInto(x, codes).ok());
      EXPECT_TRUE(codes.GapsUntouched());
      ExpectCodesOf(x, codes);
      Matrix y(t.N, t.C);
      ASSERT_TRUE(DequantizeFrom(codes, y).ok());
      ExpectClose(y, Map(y, [&](int64_t i, int64_t c) { return codes.value(i, c); }));
    }
  }
}

TEST(QuantizeTest, Mesa4NearestByHand) {
  Matrix x(1, 4), y(1, 4);
  const double values[] = {-1.0, 0.0, 0.5, 3.0};
  for (int64_t c = 0; c < 4; ++c) x.Set(0, c, values[c]);
  Coded codes = OneGroup(1, 4, {4.0f / 255.0f, -1.0f});
  ASSERT_TRUE(QuantizeInto(x, codes, Rounding::kNearest).ok());
  const int expected[] = {0, 64, 96, 255};
  const double back[] = {-1.0, 0.0039216, 0.5058824, 3.0};
  ASSERT_TRUE(DequantizeFrom(codes, y).ok());
  for (int64_t c = 0; c < 4; ++c) {
    EXPECT_EQ(codes.code(0, c), expected[c]);
    EXPECT_NEAR(y.At(0, c), back[c], 1e-6);
  }
}

// With a step of 1 whole numbers keep their value whatever is drawn.
TEST(QuantizeTest, Mesa5WholeNumbersAreFixedPoints) {
  Matrix x(1, 256), y(1, 256);
  for (int64_t c = 0; c < 256; ++c) x.Set(0, c, static_cast<double>(c));
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Coded codes = OneGroup(1, 256, {1.0f, 0.0f});
    ASSERT_TRUE(QuantizeInto(x, codes, Rounding::kStochastic, {.seed = seed}).ok());
    ASSERT_TRUE(DequantizeFrom(codes, y).ok());
    for (int64_t c = 0; c < 256; ++c) {
      ASSERT_EQ(codes.code(0, c), c);
      ASSERT_EQ(y.At(0, c), static_cast<double>(c));
    }
  }
}

// What lies outside the range becomes its end. Without the upper clamp 463 would wrap to a code
// near the minimum (208), as the reference's kernel does; without the lower one -2 to 198 or 199.
TEST(QuantizeTest, Mesa6ClampsAtBothEnds) {
  const auto code_of = [](double value, Range32 range) {
    Matrix x(1, 1);
    x.Set(0, 0, value);
    Coded codes = OneGroup(1, 1, range);
    EXPECT_TRUE(QuantizeInto(x, codes, Rounding::kNearest).ok());
    return codes.code(0, 0);
  };
  const Range32 above = {4.4f / 255.0f, -1.0f}, below = {4.0f / 255.0f, -1.1f};
  EXPECT_EQ(code_of(7.0, above), 255);
  EXPECT_EQ(code_of(-2.0, below), 0);
  const auto wrapped = [](double value, Range32 r) {
    return static_cast<int64_t>(std::floor((value - r.low) / r.step + 0.5)) & 255;
  };
  EXPECT_EQ(wrapped(7.0, above), 208);
  EXPECT_NE(wrapped(-2.0, below), 0);
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(code_of(infinity, above), 255);
  EXPECT_EQ(code_of(-infinity, above), 0);
  EXPECT_EQ(code_of(std::nan(""), above), 0);  // The header says so.
}

// The mean error of 1e5 draws, in steps, at v steps above the minimum; and what MESA-7 allows.
double MeanError(double v, Rounding rounding) {
  constexpr int64_t kRows = 100, kColumns = 1000;
  Matrix x(kRows, kColumns);
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t c = 0; c < kColumns; ++c) x.Set(i, c, v);
  }
  Coded codes = OneGroup(kRows, kColumns, {1.0f, 0.0f});
  EXPECT_TRUE(QuantizeInto(x, codes, rounding).ok());
  double sum = 0.0;
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t c = 0; c < kColumns; ++c) sum += codes.code(i, c) - x.At(i, c);
  }
  return std::abs(sum / 1e5);
}
double Allowed(double v) {
  const double f = v - std::floor(v);
  return 4.0 * std::sqrt(f * (1.0 - f) / 1e5);
}

TEST(QuantizeTest, Mesa7StochasticRoundingIsUnbiased) {
  for (double v : {0.001, 0.3, 0.5, 17.9, 254.999, 128.25}) {
    EXPECT_LT(MeanError(v, Rounding::kStochastic), Allowed(v)) << v;
  }
}
// Negative control: the same measure finds the bias of rounding to nearest.
TEST(QuantizeTest, Mesa7RoundingToNearestIsBiased) {
  EXPECT_GT(MeanError(0.3, Rounding::kNearest), Allowed(0.3));
  EXPECT_GT(MeanError(0.001, Rounding::kNearest), Allowed(0.001));
}

TEST(QuantizeTest, Mesa8VarianceOfTheError) {
  constexpr int64_t kRows = 200, kColumns = 1000;
  Matrix x(kRows, kColumns);
  x.Fill(3);
  for (Rounding rounding : {Rounding::kStochastic, Rounding::kNearest}) {
    Coded codes = OneGroup(kRows, kColumns, {12.0f / 255.0f, -6.0f});
    ASSERT_TRUE(QuantizeInto(x, codes, rounding).ok());
    double squares = 0.0, largest = 0.0;
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t c = 0; c < kColumns; ++c) {
        const double error = (codes.value(i, c) - x.At(i, c)) * 255.0 / 12.0;
        squares += error * error;
        largest = std::max(largest, std::abs(error));
      }
    }
    const bool stochastic = rounding == Rounding::kStochastic;
    const double variance = stochastic ? 1.0 / 6.0 : 1.0 / 12.0;
    EXPECT_NEAR(squares / 2e5, variance, 0.02 * variance);
    EXPECT_LT(largest, (stochastic ? 1.0 : 0.5) + 1e-4);
  }
}

// Elements whose code a fused multiply-add would change: (x - low) / step lies a little less than
// half a unit above the point where x / step + u rounds to 1. Nobody may fuse.
TEST(QuantizeTest, ContractionWouldChangeCodes) {
  constexpr int64_t kColumns = 4097;
  const float step = 0.7f, inverse = 1.0f / step;
  Matrix x(1, kColumns);
  std::vector<int64_t> sensitive;
  for (int64_t c = 0; c < kColumns; ++c) {
    const auto u = static_cast<float>(UniformOf(kQuantizeSite, 0, kColumns, c));
    auto value = static_cast<float>((1.0 - u - 1.3 * 0x1p-25) / inverse);
    for (int k = 0; k < 4; ++k) value = std::nextafter(value, 0.0f);
    for (int k = 0; k < 8; ++k, value = std::nextafter(value, 2.0f)) {
      const volatile float product = value * inverse;
      if (std::floor(product + u) == std::floor(std::fma(value, inverse, u))) continue;
      sensitive.push_back(c);
      break;
    }
    x.Set(0, c, value);
  }
  ASSERT_GT(sensitive.size(), 50u);
  Coded codes = OneGroup(1, kColumns, {step, 0.0f});
  ASSERT_TRUE(QuantizeInto(x, codes).ok());
  for (int64_t c : sensitive) {
    const auto u = static_cast<float>(UniformOf(kQuantizeSite, 0, kColumns, c));
    const volatile float product = static_cast<float>(x.At(0, c)) * inverse;
    ASSERT_EQ(codes.code(0, c), static_cast<int>(std::floor(product + u))) << c;
  }
}

// MESA-18: the same bits for all threads, instruction sets and runs.
TEST(QuantizeTest, Mesa18SameCodesEveryWay) {
  for (CodeBits bits : kBits) {
    for (DType dtype : kTypes) {
      const Matrix x = Normal(67, 1031, 15, dtype);
      ExpectSameBitsEveryWay([&] {
        Coded codes(67, 1031, bits);
        EXPECT_TRUE(QuantizeInto(x, codes).ok());
        Matrix y(67, 1031, dtype);
        EXPECT_TRUE(DequantizeFrom(codes, y).ok());
        Bytes bytes = codes.bytes();
        bytes.insert(bytes.end(), y.bytes().begin(), y.bytes().end());
        return bytes;
      });
    }
  }
}

// What CUDA writes is what the CPU writes, codes and ranges, bit by bit. (On the CPU: twice.)
TEST(QuantizeTest, SameCodesOnTheCpuAndOnCuda) {
  for (CodeBits bits : kBits) {
    for (int64_t C : {33, 264, 1031}) {
      for (double scale : {1.0, 1e-30, 1e30}) {
        Matrix x(9, C, DType::kF32);
        x.Fill(21, scale);
        Coded here(9, C, bits), there(9, C, bits);
        ASSERT_TRUE(QuantizeInto(x, here, Rounding::kStochastic, kQuantizeSite, nullptr).ok());
        ASSERT_TRUE(QuantizeInto(x, there).ok());
        EXPECT_EQ(here.bytes(), there.bytes());
      }
    }
  }
}

// Rows of a chunk draw and find their groups as in the whole.
TEST(QuantizeTest, SameCodesHoweverRowsAreDivided) {
  const Grouping grouping = {.run_rows = 2, .row_groups = 3};
  const Matrix x = Normal(8, 130, 8);
  Coded all(8, 130, CodeBits::k8, RangeKind::kGroups, grouping);
  for (int g = 0; g < 3; ++g) all.groups()[g] = {0.03f + 0.01f * static_cast<float>(g), -3.0f};
  Coded apart = all;
  ASSERT_TRUE(QuantizeInto(x, all).ok());
  for (int64_t row = 0; row < 8; ++row) {
    QuantizeParams p = {.x = static_cast<const float*>(x.data()) + row * x.stride(),
                        .to = apart.q(),
                        .N = 1,
                        .C = 130,
                        .dither = {.site = kQuantizeSite}};
    p.to.codes = static_cast<uint8_t*>(p.to.codes) + row * p.to.codes_stride;
    p.to.first_row = row;
    ASSERT_TRUE(Quantize(p, TestStream()).ok());
  }
  EXPECT_EQ(all.bytes(), apart.bytes());
}

// MESA-16 for blocks: constants that bf16 holds come back exactly, and what is too narrow to divide
// by as its minimum; what is not finite makes its block NaN, and no other.
TEST(QuantizeTest, Mesa16DegenerateBlocks) {
  const auto constant = [](double value) {
    Matrix x(1, 31), y(1, 31);
    for (int64_t c = 0; c < 31; ++c) x.Set(0, c, value);
    Coded codes(1, 31, CodeBits::k8);
    EXPECT_TRUE(QuantizeInto(x, codes).ok());
    EXPECT_TRUE(DequantizeFrom(codes, y).ok());
    return Dense(y);
  };
  for (double value : {0.0, 1.0, -2.5, 0x1p127}) {
    for (double back : constant(value)) EXPECT_EQ(back, value);
  }
  for (double back : constant(0x1p-140)) EXPECT_EQ(back, 0.0);
  for (double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    Matrix x = Normal(2, 256, 4), y(2, 256);
    x.Set(0, 130, bad);
    Coded codes(2, 256, CodeBits::k8);
    ASSERT_TRUE(QuantizeInto(x, codes).ok());
    ASSERT_TRUE(DequantizeFrom(codes, y).ok());
    for (int64_t c = 0; c < 256; ++c) {
      EXPECT_EQ(std::isnan(y.At(0, c)), c >= 128);
      EXPECT_TRUE(std::isfinite(y.At(1, c)));
    }
  }
}

// A byte an element (half of one), and what its ranges take.
TEST(QuantizeTest, Mesa17SavedBytes) {
  Quantized q;
  EXPECT_EQ(CodeBytes(1001, CodeBits::k8), 1001);
  EXPECT_EQ(CodeBytes(1001, CodeBits::k4), 501);
  EXPECT_EQ(RangeBytes(q, 10, 129), 10 * 2 * 4);
  q.kind = RangeKind::kGroups;
  q.grouping = {.run_rows = 197, .row_groups = 3};
  EXPECT_EQ(RangeBytes(q, 394, 64), 8 * 3);
  q.grouping = {.group_columns = 16};
  EXPECT_EQ(RangeBytes(q, 394, 64), 8 * 4);
}

TEST(QuantizeTest, RefusesBadArguments) {
  const Matrix x = Normal(3, 34, 1);
  Coded codes(3, 34, CodeBits::k8);
  const Bytes before = codes.bytes();
  const auto refused = [&](auto change) {
    QuantizeParams p = {.x = x.data(),
                        .to = codes.q(),
                        .N = 3,
                        .C = 34,
                        .x_stride = x.stride(),
                        .dither = {.site = kQuantizeSite}};
    change(p);
    return Name(Quantize(p, TestStream()));
  };
  using P = QuantizeParams;
  EXPECT_EQ(refused([](P& p) { p.x = nullptr; }), "null pointer: x");
  EXPECT_EQ(refused([](P& p) { p.to.codes = nullptr; }), "null pointer: codes");
  EXPECT_EQ(refused([](P& p) { p.to.ranges = nullptr; }), "null pointer: ranges");
  EXPECT_EQ(refused([](P& p) { p.x_stride = 33; }), "bad stride: x_stride");
  EXPECT_EQ(refused([](P& p) { p.to.codes_stride = 33; }), "bad stride: codes_stride");
  EXPECT_EQ(refused([](P& p) { p.dtype = static_cast<DType>(9); }), "bad dtype: dtype");
  EXPECT_EQ(refused([](P& p) { p.to.bits = static_cast<CodeBits>(9); }), "bad dtype: bits");
  EXPECT_EQ(refused([](P& p) { p.to.kind = static_cast<RangeKind>(9); }), "bad dtype: kind");
  EXPECT_EQ(refused([](P& p) { p.dither.site.op = kMaxRandomOps; }), "bad value: site.op");
  EXPECT_EQ(refused([](P& p) { p.to.first_row = -1; }), "bad value: first_row");
  EXPECT_EQ(refused([](P& p) {
              p.to.kind = RangeKind::kGroups;
              p.to.grouping.group_columns = 5;
            }),
            "bad shape: group_columns");
  Matrix y(3, 34);
  const Bytes y_before = y.bytes();
  DequantizeParams d = {.from = codes.q(), .y = y.data(), .N = 3, .C = 34, .y_stride = 30};
  EXPECT_EQ(Name(Dequantize(d, TestStream())), "bad stride: y_stride");
  d.y_stride = 34;
  d.from.codes = nullptr;
  EXPECT_EQ(Name(Dequantize(d, TestStream())), "null pointer: codes");
  EXPECT_EQ(codes.bytes(), before);
  EXPECT_EQ(y.bytes(), y_before);
}

}  // namespace
}  // namespace snug::kernels
