// AdamW with its moments in 8 bits: the map of levels against bitsandbytes' definition, the codes
// against the nearest level, the update against AdamW in double with rounding between the steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "kernels/adamw.h"
#include "kernels/dynamic_map.h"
#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

// bitsandbytes' create_dynamic_map(signed, max_exponent_bits = 7, total_bits = 8), step by step:
// per exponent the middles between evenly spaced boundaries in [0.1, 1], then 0 and 1, sorted.
std::vector<double> DefinedMap(bool is_signed) {
  std::vector<double> levels = {0.0, 1.0};
  for (int i = 0; i < 7; ++i) {
    const int fractions = (1 << (is_signed ? i : i + 1)) + 1;
    for (int k = 0; k + 1 < fractions; ++k) {
      const double below = 0.1 + 0.9 * k / (fractions - 1);
      const double above = 0.1 + 0.9 * (k + 1) / (fractions - 1);
      const double level = std::pow(10.0, i - 6) * (below + above) / 2.0;
      levels.push_back(level);
      if (is_signed) levels.push_back(-level);
    }
  }
  std::sort(levels.begin(), levels.end());
  return levels;
}

// The nearest of the levels; -1 where x lies too near to the middle of two to tell.
int NearestCode(const std::vector<double>& levels, double x) {
  int best = 0, second = 1;
  for (int code = 0; code < 256; ++code) {
    if (std::abs(levels[code] - x) < std::abs(levels[best] - x)) {
      second = best;
      best = code;
    } else if (code != best && std::abs(levels[code] - x) < std::abs(levels[second] - x)) {
      second = code;
    }
  }
  if (second == best) second = best == 0 ? 1 : best - 1;
  const double gap = std::abs(levels[second] - x) - std::abs(levels[best] - x);
  return gap < 1e-4 * std::abs(levels[second] - levels[best]) ? -1 : best;
}

TEST(DynamicMapTest, LevelsAreThoseOfTheDefinition) {
  for (bool is_signed : {true, false}) {
    const std::vector<double> levels = DefinedMap(is_signed);
    ASSERT_EQ(levels.size(), 256u);
    for (int code = 0; code < 256; ++code) {
      EXPECT_NEAR(DynamicLevel(is_signed, code), levels[code], 1e-7 * std::abs(levels[code]))
          << code;
    }
  }
}

uint8_t CodeOf(bool is_signed, float x) {
  return is_signed ? DynamicCode<true>(MakeDynamicEdges(true), x)
                   : DynamicCode<false>(MakeDynamicEdges(false), x);
}

// Every level keeps its code, and every 9973rd fp32 in [-1, 1] has that of the nearest level.
TEST(DynamicMapTest, CodesAreOfTheNearestLevel) {
  for (bool is_signed : {true, false}) {
    const std::vector<double> levels = DefinedMap(is_signed);
    for (int code = 0; code < 256; ++code) {
      EXPECT_EQ(CodeOf(is_signed, DynamicLevel(is_signed, code)), code);
    }
    int64_t compared = 0;
    for (uint32_t bits = 0x2f000000u; bits <= 0x3f800000u; bits += 9973) {  // From 2^-33 to 1.
      for (float sign : {1.0f, -1.0f}) {
        if (sign < 0.0f && !is_signed) continue;
        const float x = sign * FloatOfBits(bits);
        const int nearest = NearestCode(levels, x);
        if (nearest < 0) continue;
        ASSERT_EQ(CodeOf(is_signed, x), nearest) << x;
        ++compared;
      }
    }
    EXPECT_GT(compared, 20000);
  }
}

constexpr AdamWParams kSettings = {.count = 1,
                                   .lr = 1e-3,
                                   .beta1 = 0.9,
                                   .beta2 = 0.95,
                                   .eps = 1e-8,
                                   .weight_decay = 0.1,
                                   .grad_scale = 0.5f};

// Parameters with moments in 8 bits, that begin at zero.
struct Coded {
  Matrix p, g, m_scale, v_scale;
  Bytes m, v;
  int64_t offset;  // Of the codes: a byte off every alignment, or aligned.

  explicit Coded(int64_t n)
      : p(1, n),
        g(1, n),
        m_scale(1, CodeBlocks(n)),
        v_scale(1, CodeBlocks(n)),
        m(n + 24, 0),
        v(n + 24, 0),
        offset(n % 8 == 0 ? 16 : 1) {
    p.Fill(1);
    for (int64_t b = 0; b < CodeBlocks(n); ++b) {
      m_scale.Set(0, b, 0.0);
      v_scale.Set(0, b, 0.0);
    }
  }
  AdamWTensor Tensor() {
    return {.p = p.floats(),
            .g = g.floats(),
            .n = p.C(),
            .codes = {.m = m.data() + offset,
                      .v = v.data() + offset,
                      .m_scale = m_scale.floats(),
                      .v_scale = v_scale.floats()}};
  }
  // Gradients whose sizes differ from element to element, by up to 10^decades.
  void NextGradient(int64_t step, int decades = 2) {
    g.Fill(static_cast<uint32_t>(100 + step));
    for (int64_t i = 0; i < g.C(); ++i) {
      const int64_t decade = i % (decades + 1);
      g.Set(0, i, (g.At(0, i) + 0.5) * std::pow(10.0, -static_cast<double>(decade)));
    }
  }
  Error Step(int64_t step) {
    const AdamWTensor tensor = Tensor();
    AdamWParams params = kSettings;
    params.tensors = &tensor;
    params.step = step;
    return AdamW(params, TestStream());
  }
  double Moment(bool first, int64_t i) const {
    WaitForKernels();
    return first ? DynamicLevel(true, m[offset + i]) * m_scale.At(0, i / kCodeBlock)
                 : DynamicLevel(false, v[offset + i]) * v_scale.At(0, i / kCodeBlock);
  }
};

// AdamW in double. With `rounded` the moments are rounded between the steps: each block of 256
// divided by its largest magnitude, and to the nearest of the defined levels.
struct Exact {
  std::vector<double> p, m, v;

  explicit Exact(const Matrix& parameters)
      : p(Dense(parameters)), m(p.size(), 0.0), v(p.size(), 0.0) {}

  void Step(int64_t step, const Matrix& g, bool rounded) {
    for (size_t i = 0; i < p.size(); ++i) {
      const double gradient = 0.5 * g.At(0, static_cast<int64_t>(i));
      m[i] = 0.9 * m[i] + 0.1 * gradient;
      v[i] = 0.95 * v[i] + 0.05 * gradient * gradient;
      const double moved = 1e-3 * (m[i] / (1.0 - std::pow(0.9, step))) /
                           (std::sqrt(v[i] / (1.0 - std::pow(0.95, step))) + 1e-8);
      p[i] = p[i] * (1.0 - 1e-4) - moved;
    }
    if (!rounded) return;
    Round(m, DefinedMap(true));
    Round(v, DefinedMap(false));
  }
  static void Round(std::vector<double>& x, const std::vector<double>& levels) {
    for (size_t begin = 0; begin < x.size(); begin += 256) {
      const size_t end = std::min(begin + 256, x.size());
      double largest = 0.0;
      for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(x[i]));
      if (largest == 0.0) continue;
      for (size_t i = begin; i < end; ++i) {
        const auto above = std::lower_bound(levels.begin(), levels.end(), x[i] / largest);
        const auto at = above == levels.end() ? above - 1 : above;
        const bool lower =
            at != levels.begin() && x[i] / largest - *(at - 1) < *at - x[i] / largest;
        x[i] = *(lower ? at - 1 : at) * largest;
      }
    }
  }
};

// One step from zero moments: all of it must agree, but for codes in the middle of two levels.
TEST(AdamWCodesTest, AStepMatchesTheReference) {
  for (int64_t n : {1, 31, 33, 127, 256, 512, 4097, 8192 + 264}) {
    Coded coded(n);
    Exact exact(coded.p);
    coded.NextGradient(1);
    ASSERT_TRUE(coded.Step(1).ok());
    exact.Step(1, coded.g, true);
    ExpectClose(coded.p, exact.p);
    int64_t different = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double m = coded.Moment(true, i), v = coded.Moment(false, i);
      different += std::abs(m - exact.m[i]) > 1e-6 * std::abs(exact.m[i]) ? 1 : 0;
      different += std::abs(v - exact.v[i]) > 1e-6 * std::abs(exact.v[i]) ? 1 : 0;
    }
    EXPECT_LE(different, n / 500) << n;
    EXPECT_TRUE(coded.m_scale.GapsUntouched() && coded.v_scale.GapsUntouched());
    for (const Bytes* codes : {&coded.m, &coded.v}) {
      EXPECT_EQ(std::count(codes->begin(), codes->begin() + coded.offset, 0), coded.offset);
      EXPECT_EQ(std::count(codes->begin() + coded.offset + n, codes->end(), 0), 24 - coded.offset);
    }
  }
}

struct Distances {
  double reference, exact;  // Of p's way: from AdamW with rounded moments, from exact AdamW.
};

Distances After(int64_t steps, int64_t n, int decades) {
  Coded coded(n);
  Exact rounded(coded.p), exact(coded.p);
  const std::vector<double> begin = exact.p;
  for (int64_t step = 1; step <= steps; ++step) {
    coded.NextGradient(step, decades);
    EXPECT_TRUE(coded.Step(step).ok());
    rounded.Step(step, coded.g, true);
    exact.Step(step, coded.g, false);
  }
  double way = 0.0, reference = 0.0, from_exact = 0.0;
  for (int64_t i = 0; i < n; ++i) {
    way += std::pow(exact.p[i] - begin[i], 2);
    reference += std::pow(coded.p.At(0, i) - rounded.p[i], 2);
    from_exact += std::pow(coded.p.At(0, i) - exact.p[i], 2);
  }
  return {std::sqrt(reference / way), std::sqrt(from_exact / way)};
}

// A hundred steps: as far from exact AdamW as rounding to 8 bits takes it, no farther, and near to
// the same rounding in double (codes between two levels fall either way and then live on).
TEST(AdamWCodesTest, StaysNearExactAdamWOverAHundredSteps) {
  const Distances distances = After(100, 1000, 0);
  RecordProperty("from_exact", std::to_string(distances.exact));
  EXPECT_LE(distances.reference, 2e-3);
  EXPECT_LE(distances.exact, 1.5e-2);
  EXPECT_GT(distances.exact, 1e-4);  // It is rounded.
}

// What the method cannot do: where gradients stay below 4e-4 of the largest of their block, their
// second moments are nearer to 0 than to the smallest level, and steps grow out of bounds.
TEST(AdamWCodesTest, LosesSecondMomentsFarBelowTheirBlocks) {
  EXPECT_GT(After(100, 500, 4).exact, 0.5);
}

// Some tensors in 8 bits and others in fp32, in one call: as if each had its own call.
TEST(AdamWCodesTest, MixesWithTensorsInFp32) {
  Coded coded(600), alone(600);
  Matrix p(1, 33), g(1, 33), m(1, 33), v(1, 33);
  for (Matrix* x : {&p, &g, &m}) x->Fill(5);
  for (int64_t i = 0; i < 33; ++i) v.Set(0, i, 0.5);
  Matrix p_alone = p, m_alone = m, v_alone = v;
  coded.NextGradient(1);
  alone.NextGradient(1);
  const AdamWTensor tensors[] = {
      {.p = p.floats(), .g = g.floats(), .m = m.floats(), .v = v.floats(), .n = 33},
      coded.Tensor()};
  AdamWParams params = kSettings;
  params.tensors = tensors;
  params.count = 2;
  params.step = 1;
  ASSERT_TRUE(AdamW(params, TestStream()).ok());
  ASSERT_TRUE(alone.Step(1).ok());
  const AdamWTensor second = {.p = p_alone.floats(),
                              .g = g.floats(),
                              .m = m_alone.floats(),
                              .v = v_alone.floats(),
                              .n = 33};
  params.tensors = &second;
  params.count = 1;
  ASSERT_TRUE(AdamW(params, TestStream()).ok());
  EXPECT_EQ(coded.p.bytes(), alone.p.bytes());
  EXPECT_EQ(coded.m, alone.m);
  EXPECT_EQ(coded.v, alone.v);
  EXPECT_EQ(p.bytes(), p_alone.bytes());
}

// The same codes on every device: those that DynamicCode gives for the moments in fp32.
TEST(AdamWCodesTest, CodesAreTheSameOnEveryDevice) {
  constexpr int64_t kN = 3000;
  Coded coded(kN);
  coded.NextGradient(1);
  ASSERT_TRUE(coded.Step(1).ok());
  for (int64_t begin = 0; begin < kN; begin += kCodeBlock) {
    const int64_t end = std::min(begin + kCodeBlock, kN);
    float largest_m = 0.0f, largest_v = 0.0f;
    std::vector<float> m, v;
    for (int64_t i = begin; i < end; ++i) {
      const float gradient = static_cast<float>(coded.g.At(0, i)) * 0.5f;
      m.push_back(static_cast<float>(1.0 - 0.9) * gradient);
      v.push_back((static_cast<float>(1.0 - 0.95) * gradient) * gradient);
      largest_m = std::max(largest_m, std::abs(m.back()));
      largest_v = std::max(largest_v, v.back());
    }
    ASSERT_EQ(coded.m_scale.At(0, begin / kCodeBlock), largest_m);
    ASSERT_EQ(coded.v_scale.At(0, begin / kCodeBlock), largest_v);
    for (int64_t i = begin; i < end; ++i) {
      ASSERT_EQ(coded.m[coded.offset + i], CodeOf(true, m[i - begin] * (1.0f / largest_m))) << i;
      ASSERT_EQ(coded.v[coded.offset + i], CodeOf(false, v[i - begin] * (1.0f / largest_v))) << i;
    }
  }
}

// A gradient that is not finite makes NaN of its own block of 256, and of no other.
TEST(AdamWCodesTest, NanSpreadsToItsBlock) {
  for (double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    Coded coded(600);
    coded.NextGradient(1);
    coded.g.Set(0, 300, bad);
    ASSERT_TRUE(coded.Step(1).ok());
    coded.NextGradient(2);
    ASSERT_TRUE(coded.Step(2).ok());
    for (int64_t i : {0, 255, 512, 599}) EXPECT_TRUE(std::isfinite(coded.p.At(0, i))) << i;
    for (int64_t i : {256, 300, 511}) EXPECT_TRUE(std::isnan(coded.p.At(0, i))) << i;
  }
}

TEST(AdamWCodesTest, SameBitsForAllThreadCountsAndInstructionSets) {
  ExpectSameBitsEveryWay([] {
    Coded coded(20001);
    for (int64_t step = 1; step <= 2; ++step) {
      coded.NextGradient(step);
      EXPECT_TRUE(coded.Step(step).ok());
    }
    Bytes bytes = coded.p.bytes();
    bytes.insert(bytes.end(), coded.m.begin(), coded.m.end());
    bytes.insert(bytes.end(), coded.v.begin(), coded.v.end());
    return bytes;
  });
}

TEST(AdamWCodesTest, RefusesBadArguments) {
  Coded coded(31);
  coded.NextGradient(1);
  const Bytes before = coded.p.bytes();
  const auto refused = [&](auto change) {
    AdamWTensor tensor = coded.Tensor();
    change(tensor);
    AdamWParams params = kSettings;
    params.tensors = &tensor;
    params.step = 1;
    return Name(AdamW(params, TestStream()));
  };
  EXPECT_EQ(refused([](AdamWTensor& t) { t.codes.v = nullptr; }), "null pointer: codes.v");
  EXPECT_EQ(refused([](AdamWTensor& t) { t.codes.m_scale = nullptr; }),
            "null pointer: codes.m_scale");
  EXPECT_EQ(refused([](AdamWTensor& t) { t.m = t.p; }), "bad value: codes");
  EXPECT_EQ(refused([](AdamWTensor& t) { t.codes = {}; }), "null pointer: m");
  EXPECT_EQ(coded.p.bytes(), before);
}

}  // namespace
}  // namespace snug::kernels
