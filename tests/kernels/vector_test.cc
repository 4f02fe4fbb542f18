// The vector type's own functions, the exponential, the tangent and the activations, as compiled
// here.
#include "kernels/cpu/loops/vector.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "kernels/cpu/loops/activations.h"
#include "kernels/cpu/loops/dynamic_code.h"
#include "kernels/cpu/loops/exp.h"
#include "kernels/cpu/loops/pairs.h"
#include "kernels/cpu/loops/peak.h"
#include "kernels/cpu/loops/tanh.h"
#include "tests/kernels/activation_testing.h"

namespace snug::kernels::SNUG_ISA {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Every 97th fp32, both signs: as close as the header says, and 0 where the exponential is hardly a
// normal number.
TEST(ExpTest, FlushedIsWithinUnitsOfTheTruthAndZeroBelow) {
  const auto flushed = [](float x) { return ExpFlushed(Splat(x))[3]; };
  double worst = 0.0;
  for (uint64_t bits = 0; bits < 0x100000000u; bits += 97) {
    float x;
    const uint32_t low = static_cast<uint32_t>(bits);
    memcpy(&x, &low, sizeof(x));
    if (!(x < 88.0f)) continue;
    if (x < -87.0f) {
      ASSERT_EQ(flushed(x), 0.0f) << x;
      continue;
    }
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(flushed(x) / exact - 1.0));
  }
  EXPECT_LE(worst * 0x1p24, 3.5);
  EXPECT_GT(worst * 0x1p24, 0.5);  // Else nothing was measured.
  EXPECT_EQ(flushed(0.0f), 1.0f);
  EXPECT_EQ(flushed(-0.0f), 1.0f);
  EXPECT_EQ(flushed(-kInfinity), 0.0f);
  for (float x = 88.4f; x <= 89.0f; x += 0.01f) EXPECT_EQ(flushed(x), kInfinity) << x;
  for (uint32_t nan : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xffffffffu}) {
    EXPECT_TRUE(std::isnan(flushed(FloatOfBits(nan)))) << std::hex << nan;
  }
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
    const ValueAndSlope t = Tanh(Splat(x));
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

// Every 997th fp32, both signs: within `relative` or 1e-7, as kernels/activation.h says; slopes
// within 1e-6 relative or 2e-7.
template <typename H>
void CheckActivation(Activation activation, double relative) {
  double worst = 0.0;
  for (uint64_t bits = 0; bits < 0x100000000u; bits += 997) {
    const float x = FloatOfBits(static_cast<uint32_t>(bits));
    if (!std::isfinite(x)) continue;
    const ValueAndSlope both = H::Of(Splat(x));
    const double value = ValueIn64(activation, x), slope = SlopeIn64(activation, x);
    const auto off = [](float actual, double exact, double of_exact, double near_zero) {
      return std::abs(actual - exact) / std::max(of_exact * std::abs(exact), near_zero);
    };
    worst = std::max(worst, off(H::Value(Splat(x))[3], value, relative, 1e-7));
    worst = std::max(worst, off(both.value[7], value, relative, 1e-7));
    worst = std::max(worst, off(both.slope[11], slope, 1e-6, 2e-7));
    ASSERT_LE(worst, 1.0) << x;
  }
  EXPECT_GT(worst, 0.1);  // Else nothing was measured.
}
TEST(ActivationsTest, AreWithinTheHeadersBoundEverywhere) {
  CheckActivation<Silu>(Activation::kSilu, 1e-6);
  CheckActivation<GeluTanh>(Activation::kGeluTanh, 1e-6);
  CheckActivation<Gelu>(Activation::kGelu, 1.5e-6);
}

// Rows of any length of which one element is the largest, whichever; signed zeros, infinities, NaN.
template <typename T>
void CheckPeak() {
  for (int64_t n : {1, 2, 15, 16, 17, 33, 100, 257}) {
    std::vector<T> x(n);
    for (int64_t at = 0; at < n; ++at) {
      for (float sign : {1.0f, -1.0f}) {
        const auto set = [&](int64_t i, float v) { Store(&x[i], Splat(v), Part{1}); };
        for (int64_t i = 0; i < n; ++i) set(i, -5.0f);
        set(at, sign * 3.0f);
        EXPECT_EQ(PeakOf(x.data(), n).max, sign * 3.0f) << n << ": " << at;
        EXPECT_TRUE(PeakOf(x.data(), n).finite);
        set(at, sign * kInfinity);
        EXPECT_FALSE(PeakOf(x.data(), n).finite) << n << ": " << at;
        EXPECT_EQ(PeakOf(x.data(), n).max, sign > 0.0f || n == 1 ? sign * kInfinity : -5.0f);
        set(at, sign * std::nanf(""));
        EXPECT_FALSE(PeakOf(x.data(), n).finite) << n << ": " << at;
      }
    }
    if (n == 1) continue;
    Store(&x[0], Splat(-0.0f), Part{1});
    Store(&x[n - 1], Splat(0.0f), Part{1});
    EXPECT_FALSE(std::signbit(PeakOf(x.data(), n).max));
  }
}
TEST(PeakTest, IsTheLargestElementOfARow) {
  CheckPeak<float>();
  CheckPeak<bf16>();
  CheckPeak<f16>();
}

// The vector's conversion must be the scalar one of types.h: ties, NaN, infinity, subnormals.
TEST(StoreTest, RoundsToBf16AsTheScalarConversionDoes) {
  for (uint64_t bits = 0; bits < 0x100000000u; bits += 4099) {
    for (uint32_t tie : {0u, 0x8000u}) {
      const uint32_t low = tie == 0 ? static_cast<uint32_t>(bits) : (bits & 0xffff0000u) | tie;
      float x;
      memcpy(&x, &low, sizeof(x));
      bf16 stored[32];
      Store(stored, Splat(x), Whole{});
      ASSERT_EQ(stored[7].bits, ToBf16(x).bits) << std::hex << low;
      StorePair(stored, {Splat(1.0f), Splat(x)});
      ASSERT_EQ(stored[7].bits, ToBf16(x).bits) << std::hex << low;
      ASSERT_EQ(ToFloat(stored[8]), 1.0f);
    }
  }
}

TEST(LoadTest, WidensEveryF16AsTheScalarConversionDoes) {
  for (uint32_t first = 0; first < 0x10000; first += kLanes) {
    f16 halves[kLanes];
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      halves[lane].bits = static_cast<uint16_t>(first + lane);
    }
    const F32x16 wide = Load(halves, Whole{});
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      ASSERT_EQ(BitsOf(wide[lane]), BitsOf(ToFloat(halves[lane]))) << std::hex << first + lane;
    }
  }
}

// Every boundary between two halves, the numbers next to it, and every 4099th fp32, NaN too.
TEST(StoreTest, RoundsToF16AsTheScalarConversionDoes) {
  const auto check = [](uint32_t bits) {
    f16 stored[kLanes];
    Store(stored, Splat(FloatOfBits(bits)), Whole{});
    ASSERT_EQ(stored[7].bits, ToF16(FloatOfBits(bits)).bits) << std::hex << bits;
  };
  for (uint32_t half = 0; half < 0x7c00; ++half) {
    const float below = ToFloat(f16{static_cast<uint16_t>(half)});
    const float above = half == 0x7bff ? 65536.0f : ToFloat(f16{static_cast<uint16_t>(half + 1)});
    const uint32_t middle = BitsOf((below + above) / 2.0f);
    for (uint32_t near : {middle - 1, middle, middle + 1}) {
      check(near);
      check(near | 0x80000000u);
    }
  }
  for (uint64_t bits = 0; bits < 0x100000000u; bits += 4099) check(static_cast<uint32_t>(bits));
}

// The lanes' codes of dynamic 8-bit numbers are those of the scalar function, all of them.
template <bool kSigned>
void CheckCodes() {
  const DynamicEdges edges = MakeDynamicEdges(kSigned);
  std::set<int> seen;
  for (uint32_t bits = 0; bits <= 0x3f800000u; bits += 1009) {
    const float x = FloatOfBits(bits);
    for (float value : {x, -x}) {
      if (!kSigned && value < 0.0f) continue;
      const int code = DynamicCode<kSigned>(edges, value);
      ASSERT_EQ(CodeLanes<kSigned>(edges, Splat(value))[9], code) << value;
      seen.insert(code);
    }
  }
  EXPECT_EQ(seen.size(), 256u);
}
TEST(CodeLanesTest, AreTheScalarFunctions) {
  CheckCodes<true>();
  CheckCodes<false>();
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
