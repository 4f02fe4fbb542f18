// The vector type's own functions, the exponential and the tangent, as compiled here.
#include "kernels/cpu/loops/vector.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/cpu/loops/exp.h"
#include "kernels/cpu/loops/tanh.h"

namespace snug::kernels::SNUG_ISA {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float ExpOf(float x) { return Exp(Splat(x))[3]; }

// Every 97th fp32 whose exponential is a normal number, both signs.
TEST(ExpTest, IsWithinOnePointOneUnitsOfTheTruth) {
  double worst = 0.0;
  for (uint64_t bits = 0; bits < 0x100000000u; bits += 97) {
    float x;
    const uint32_t low = static_cast<uint32_t>(bits);
    memcpy(&x, &low, sizeof(x));
    if (!(x > -87.33f && x < 88.72f)) continue;
    const double exact = std::exp(static_cast<double>(x));
    int exponent;
    std::frexp(exact, &exponent);
    worst = std::max(worst, std::abs(ExpOf(x) - exact) / std::ldexp(1.0, exponent - 24));
  }
  EXPECT_LE(worst, 1.1);
  EXPECT_GT(worst, 0.5);  // Else nothing was measured.
}

TEST(ExpTest, ReachesZeroAndInfinityAndKeepsNan) {
  EXPECT_EQ(ExpOf(0.0f), 1.0f);
  EXPECT_EQ(ExpOf(-kInfinity), 0.0f);
  EXPECT_EQ(ExpOf(-1e30f), 0.0f);
  EXPECT_EQ(ExpOf(-104.5f), 0.0f);
  EXPECT_NEAR(ExpOf(-100.0f) / 0x1p-149, std::exp(-100.0) / 0x1p-149, 1.0);  // subnormal
  EXPECT_EQ(ExpOf(89.0f), kInfinity);
  EXPECT_EQ(ExpOf(1e30f), kInfinity);
  EXPECT_EQ(ExpOf(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(ExpOf(std::nanf(""))));
  EXPECT_TRUE(std::isnan(ExpOf(-std::nanf(""))));
}

// Every 97th fp32, both signs; the slope is 1 / cosh^2.
TEST(TanhTest, IsWithinThreeUnitsOfTheTruth) {
  double worst = 0.0, worst_slope = 0.0;
  for (uint64_t bits = 0; bits < 0x100000000u; bits += 97) {
    float x;
    const uint32_t low = static_cast<uint32_t>(bits);
    memcpy(&x, &low, sizeof(x));
    if (!(std::abs(x) > 1e-30f && std::abs(x) < 40.0f)) continue;
    const double exact = std::tanh(static_cast<double>(x)), cosine = std::cosh(double{x});
    const TanhAndSlope t = Tanh(Splat(x));
    int exponent;
    std::frexp(exact, &exponent);
    worst = std::max(worst, std::abs(t.value[5] - exact) / std::ldexp(1.0, exponent - 24));
    worst_slope = std::max(worst_slope, std::abs(t.slope[5] * cosine * cosine - 1.0));
  }
  EXPECT_LE(worst, 3.0);
  EXPECT_GT(worst, 0.5);  // Else nothing was measured.
  EXPECT_LE(worst_slope, 6e-7);
}

TEST(TanhTest, SaturatesAndKeepsNan) {
  EXPECT_EQ(Tanh(Splat(0.0f)).value[0], 0.0f);
  EXPECT_EQ(Tanh(Splat(0.0f)).slope[0], 1.0f);
  for (float far : {60.0f, 1e30f, kInfinity}) {
    EXPECT_EQ(Tanh(Splat(far)).value[0], 1.0f);
    EXPECT_EQ(Tanh(Splat(-far)).value[0], -1.0f);
    EXPECT_NEAR(Tanh(Splat(far)).slope[0], 0.0f, 1e-30f);
  }
  EXPECT_TRUE(std::isnan(Tanh(Splat(std::nanf(""))).value[0]));
}

// The vector's conversion must be the scalar one of types.h: ties, NaN, infinity, subnormals.
TEST(StoreTest, RoundsToBf16AsTheScalarConversionDoes) {
  for (uint64_t bits = 0; bits < 0x100000000u; bits += 4099) {
    for (uint32_t tie : {0u, 0x8000u}) {
      const uint32_t low = tie == 0 ? static_cast<uint32_t>(bits) : (bits & 0xffff0000u) | tie;
      float x;
      memcpy(&x, &low, sizeof(x));
      bf16 stored[16];
      Store(stored, Splat(x), Whole{});
      ASSERT_EQ(stored[7].bits, ToBf16(x).bits) << std::hex << low;
    }
  }
}

// A part loads and stores its lanes alone; the others are zero, or what was asked for.
TEST(PartTest, TouchesItsLanesAlone) {
  const float x[] = {1.0f, 2.0f, 3.0f};
  const F32x16 v = LoadOr(x, Part{3}, -kInfinity);
  EXPECT_EQ(v[2], 3.0f);
  EXPECT_EQ(v[3], -kInfinity);
  EXPECT_EQ(Load(x, Part{2})[2], 0.0f);
  float y[] = {0.0f, 0.0f, 7.0f};
  Store(y, v, Part{2});
  EXPECT_EQ(y[1], 2.0f);
  EXPECT_EQ(y[2], 7.0f);
}

// 10,001 ones and one large number: blocks in fp64 keep what a single fp32 chain would drop.
TEST(SumTest, AddsBlocksInDouble) {
  const double sum = Sum(10001, [](int64_t i, auto part) {
    const float ones[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    F32x16 v = Load(ones, part);
    if (i == 0) v[0] = 0x1p25f;
    return v;
  });
  EXPECT_NEAR(sum, 0x1p25 + 10000.0, 64.0);
}

}  // namespace
}  // namespace snug::kernels::SNUG_ISA
