// Ranges of groups: running estimates, snapshots, layouts. Tests are named by the oracles of the
// method (MESA-n) that they are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/kernels/quantized_testing.h"

namespace snug::kernels {
namespace {

constexpr float kDecay = 0.9f;

// A module's state, and its calls.
struct Estimate {
  Grouping grouping;
  int64_t C, groups;
  SharedVector<float> alpha, beta;
  SharedVector<int32_t> updates;
  Bytes workspace;

  Estimate(const Grouping& g, int64_t width)
      : grouping(g),
        C(width),
        groups(GroupsOf(g, width)),
        alpha(groups, -7.0f),
        beta(groups, -7.0f),
        updates(groups, 0) {}

  UpdateRangesParams Params(const Matrix& x, Range32* ranges) {
    workspace.assign(UpdateRangesWorkspace(x.N(), groups), 0xA5);
    return {.x = x.data(),
            .alpha = alpha.data(),
            .beta = beta.data(),
            .updates = updates.data(),
            .ranges = ranges,
            .N = x.N(),
            .C = x.C(),
            .x_stride = x.stride(),
            .dtype = x.dtype(),
            .grouping = grouping,
            .decay = kDecay,
            .workspace = workspace.data()};
  }
  // One training forward: ranges, then codes.
  Coded Forward(const Matrix& x, Rounding rounding = Rounding::kStochastic) {
    Coded codes(x.N(), x.C(), CodeBits::k8, RangeKind::kGroups, grouping);
    EXPECT_TRUE(UpdateRanges(Params(x, codes.groups()), TestStream()).ok());
    EXPECT_TRUE(QuantizeInto(x, codes, rounding).ok());
    WaitForKernels();
    return codes;
  }
};

Matrix Of(std::vector<double> values) {
  Matrix x(1, static_cast<int64_t>(values.size()));
  for (int64_t c = 0; c < x.C(); ++c) x.Set(0, c, values[c]);
  return x;
}

// Whether element (i, c) is in a group, from the words of the header.
int64_t GroupOf(const Grouping& g, int64_t C, int64_t i, int64_t c) {
  const int64_t width = g.group_columns == 0 ? C : g.group_columns;
  return (i / g.run_rows) % g.row_groups * (C / width) + c / width;
}

// Layouts of two, three and four dimensions, odd sizes among them; groups that have no row.
struct Layout {
  const char* name;
  int64_t N, C;
  Grouping grouping;
};
const Layout kLayouts[] = {
    {"one group", 33, 127, {}},
    {"channels of (3, 11, 320)", 33, 320, {.group_columns = 64}},
    {"channels of (1, 197, 765)", 197, 765, {.group_columns = 255}},
    {"single channels", 19, 31, {.group_columns = 1}},
    {"heads of (2, 3, 7, 197)", 42, 197, {.run_rows = 7, .row_groups = 3}},
    {"attention of (1, 2, 97, 97)", 194, 97, {.run_rows = 97, .row_groups = 2}},
    {"blocks of 8 rows", 37, 64, {.run_rows = 8, .row_groups = 5}},
    {"runs and channels", 40, 66, {.run_rows = 5, .row_groups = 4, .group_columns = 11}},
    {"rows of 4097", 3, 4097, {}},
    {"channels of (1, 3, 4097)", 3, 4097, {.group_columns = 241}},
    {"blocks of 64 of 4097 rows", 4097, 3, {.run_rows = 64, .row_groups = 65}},
    {"a group without rows", 3, 8, {.run_rows = 1, .row_groups = 4}},
};

// MESA-2 and MESA-10: after one call alpha = max - min and beta = min, of each group, exactly.
TEST(UpdateRangesTest, Mesa2TheFirstCallTakesTheRangeExactly) {
  for (const Layout& layout : kLayouts) {
    for (DType dtype : kTypes) {
      if (!OnCpu() && dtype == DType::kF16) continue;  // Emulated, bf16 is as slow, and as good.
      SCOPED_TRACE(layout.name);
      Matrix x(layout.N, layout.C, dtype);
      x.Fill(5, 3.0);
      Estimate estimate(layout.grouping, layout.C);
      Coded codes = estimate.Forward(x);
      std::vector<double> min(estimate.groups, HUGE_VAL), max(estimate.groups, -HUGE_VAL);
      for (int64_t i = 0; i < layout.N; ++i) {
        for (int64_t c = 0; c < layout.C; ++c) {
          const int64_t g = GroupOf(layout.grouping, layout.C, i, c);
          min[g] = std::min(min[g], x.At(i, c));
          max[g] = std::max(max[g], x.At(i, c));
        }
      }
      for (int64_t g = 0; g < estimate.groups; ++g) {
        const bool any = min[g] <= max[g];
        EXPECT_EQ(estimate.updates[g], any ? 1 : 0);
        if (!any) continue;
        EXPECT_EQ(estimate.alpha[g], static_cast<float>(max[g]) - static_cast<float>(min[g]));
        EXPECT_EQ(estimate.beta[g], static_cast<float>(min[g]));
        EXPECT_EQ(codes.groups()[g].step, estimate.alpha[g] / 255.0f);
        EXPECT_EQ(codes.groups()[g].low, estimate.beta[g]);
      }
      EXPECT_TRUE(codes.GapsUntouched());
    }
  }
}

// The second call blends, and quantises with what it has blended. Negative control: the estimate of
// before (updated after its use) is another one.
TEST(UpdateRangesTest, Mesa3TheEstimateTakesInTheBatchBeforeItIsUsed) {
  Estimate estimate({}, 3);
  estimate.Forward(Of({-1.0, 0.0, 3.0}));
  Coded codes = estimate.Forward(Of({-2.0, 0.0, 6.0}));
  const double alpha = 0.9 * 4.0 + 0.1 * 8.0, beta = 0.9 * -1.0 + 0.1 * -2.0;
  EXPECT_NEAR(estimate.alpha[0], alpha, 4 * 0x1p-24 * alpha);
  EXPECT_NEAR(estimate.beta[0], beta, 4 * 0x1p-24 * std::abs(beta));
  EXPECT_NEAR(codes.groups()->step, alpha / 255.0, 1e-8);
  EXPECT_GT(std::abs(codes.groups()->step - 4.0 / 255.0), 1e-3);
}

// Constant statistics are a fixed point; after k calls a step has come through by 1 - 0.9^k; a call
// without state leaves it alone and takes its own range.
TEST(UpdateRangesTest, Mesa3FixedPointStepResponseAndEvaluation) {
  Estimate estimate({}, 4);
  const Matrix x = Of({-0.7, 0.1, 0.2, 2.9}), wide = Of({-0.7, 0.1, 0.2, 12.9});
  estimate.Forward(x);
  const float alpha = estimate.alpha[0], beta = estimate.beta[0];
  for (int call = 0; call < 20; ++call) estimate.Forward(x);
  EXPECT_EQ(estimate.alpha[0], alpha);
  EXPECT_EQ(estimate.beta[0], beta);
  for (int call = 0; call < 10; ++call) estimate.Forward(wide);
  EXPECT_NEAR(estimate.alpha[0], 3.6 + 10.0 * (1.0 - std::pow(0.9, 10)), 1e-4);

  const Estimate before = estimate;
  SharedVector<Range32> ranges(1);
  UpdateRangesParams p = estimate.Params(x, ranges.data());
  p.alpha = p.beta = nullptr;
  p.updates = nullptr;
  ASSERT_TRUE(UpdateRanges(p, TestStream()).ok());
  WaitForKernels();
  EXPECT_EQ(ranges[0].step, alpha / 255.0f);
  EXPECT_EQ(estimate.alpha, before.alpha);
  EXPECT_EQ(estimate.updates, before.updates);
}

// MESA-6 with its numbers: what the estimate does not hold is clamped at both ends.
TEST(UpdateRangesTest, Mesa6ClampsWhatTheEstimateDoesNotHold) {
  const auto second = [](std::vector<double> values) {
    Estimate estimate({}, 2);
    estimate.Forward(Of({-1.0, 3.0}));
    return estimate.Forward(Of(std::move(values)), Rounding::kNearest);
  };
  const Coded above = second({-1.0, 7.0}), below = second({-2.0, 2.0});
  EXPECT_EQ(above.code(0, 1), 255);
  EXPECT_NEAR(above.value(0, 1), 3.4, 1e-6);
  EXPECT_NEAR(below.range(0, 0).low, -1.1, 1e-6);
  EXPECT_EQ(below.code(0, 0), 0);
  EXPECT_NEAR(below.value(0, 0), -1.1, 1e-6);
}

// Constant groups come back exactly; a change in one group changes no other's codes.
TEST(UpdateRangesTest, Mesa9GroupsAreApart) {
  const Grouping grouping = {.group_columns = 8};
  Matrix x(5, 32), y(5, 32);
  for (int64_t i = 0; i < 5; ++i) {
    for (int64_t c = 0; c < 32; ++c) x.Set(i, c, static_cast<double>(c / 8) + 0.1);
  }
  Coded constant = Estimate(grouping, 32).Forward(x);
  ASSERT_TRUE(DequantizeFrom(constant, y).ok());
  for (int64_t i = 0; i < 5; ++i) {
    for (int64_t c = 0; c < 32; ++c) EXPECT_EQ(y.At(i, c), x.At(i, c));
  }
  x.Fill(9);
  const Coded first = Estimate(grouping, 32).Forward(x);
  for (int64_t i = 0; i < 5; ++i) x.Set(i, 17, 100.0 * static_cast<double>(i));
  const Coded second = Estimate(grouping, 32).Forward(x);
  int64_t changed = 0;
  for (int64_t i = 0; i < 5; ++i) {
    for (int64_t c = 0; c < 32; ++c) {
      if (c / 8 == 2) {
        changed += first.code(i, c) != second.code(i, c);
      } else {
        EXPECT_EQ(first.code(i, c), second.code(i, c));
      }
    }
  }
  EXPECT_GT(changed, 0);
}

// The weight gradient of a linear layer from codes: its error is Delta / (sqrt(6) rms(x)), and
// falls as 1 / sqrt(K) over K draws.
TEST(UpdateRangesTest, Mesa11ErrorOfTheWeightGradient) {
  constexpr int64_t kRows = 256, kIn = 32, kOut = 16;
  Matrix x(kRows, kIn), dy(kRows, kOut);
  x.Fill(31);
  dy.Fill(32);
  const auto gradient = [&](const auto& value) {
    std::vector<double> dW(kOut * kIn);
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t o = 0; o < kOut; ++o) {
        for (int64_t c = 0; c < kIn; ++c) dW[o * kIn + c] += dy.At(i, o) * value(i, c);
      }
    }
    return dW;
  };
  const std::vector<double> exact = gradient([&](int64_t i, int64_t c) { return x.At(i, c); });
  double norm = 0.0, squares = 0.0;
  for (double g : exact) norm += g * g;
  for (double v : Dense(x)) squares += v * v / static_cast<double>(kRows * kIn);
  std::vector<double> mean(kOut * kIn);
  const auto error = [&](const std::vector<double>& dW) {
    double sum = 0.0;
    for (size_t k = 0; k < dW.size(); ++k) sum += std::pow(dW[k] - exact[k], 2);
    return std::sqrt(sum / norm);
  };
  constexpr int kDraws = 16;
  double single = 0.0, step = 0.0;
  Estimate estimate({}, kIn);
  Coded codes = estimate.Forward(x);
  for (int draw = 0; draw < kDraws; ++draw) {
    RandomSite site = kQuantizeSite;
    site.seed += static_cast<uint64_t>(draw);
    ASSERT_TRUE(QuantizeInto(x, codes, Rounding::kStochastic, site).ok());
    step = codes.groups()->step;
    const auto dW = gradient([&](int64_t i, int64_t c) { return codes.value(i, c); });
    single += error(dW) / kDraws;
    for (size_t k = 0; k < dW.size(); ++k) mean[k] += dW[k] / kDraws;
  }
  EXPECT_NEAR(single, step / std::sqrt(6.0 * squares), 0.2 * single);
  EXPECT_NEAR(error(mean), single / std::sqrt(kDraws), 0.3 * single / std::sqrt(kDraws));
}

// Two forwards before the first backward: each dequantises with the ranges it was quantised with,
// as two modules of equal state would.
TEST(UpdateRangesTest, Mesa15RangesBelongToTheCall) {
  Matrix x1(4, 33), x2(4, 33), y(4, 33), apart(4, 33);
  x1.Fill(41);
  x2.Fill(42, 5.0);
  Estimate module({}, 33), other({}, 33);
  Coded first = module.Forward(x1), second = module.Forward(x2);
  Coded alone = other.Forward(x1);
  ASSERT_TRUE(DequantizeFrom(first, y).ok());
  ASSERT_TRUE(DequantizeFrom(alone, apart).ok());
  EXPECT_EQ(y.bytes(), apart.bytes());
  // Negative control: the state's range at backward time gives other values.
  *first.groups() = {module.alpha[0] / 255.0f, module.beta[0]};
  ASSERT_TRUE(DequantizeFrom(first, y).ok());
  EXPECT_NE(y.bytes(), apart.bytes());
}

// What is not finite shows in this call's values and leaves the state as it was; a group of one
// element, of zeros and of values too narrow to divide by comes back as it is.
TEST(UpdateRangesTest, Mesa16DegenerateGroups) {
  for (double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    Estimate estimate({}, 4);
    estimate.Forward(Of({bad, 1.0, 2.0, 3.0}));
    EXPECT_EQ(estimate.updates[0], 0);
    estimate.Forward(Of({0.0, 1.0, 2.0, 3.0}));
    Coded codes = estimate.Forward(Of({0.0, bad, 2.0, 3.0}));
    EXPECT_EQ(estimate.updates[0], 1);
    EXPECT_EQ(estimate.alpha[0], 3.0f);
    EXPECT_EQ(estimate.beta[0], 0.0f);
    Matrix y(1, 4);
    ASSERT_TRUE(DequantizeFrom(codes, y).ok());
    EXPECT_TRUE(std::isnan(y.At(0, 1)));
  }
  for (double value : {0.0, -3.25, 1e-38}) {
    Matrix y(1, 1);
    Coded codes = Estimate({}, 1).Forward(Of({value}));
    ASSERT_TRUE(DequantizeFrom(codes, y).ok());
    EXPECT_EQ(y.At(0, 0), static_cast<double>(static_cast<float>(value)));
  }
  // fp16 whose width is far below 255 / 65504: its scale would overflow in fp16.
  Matrix x(1, 2, DType::kF16), y(1, 2, DType::kF16);
  x.Set(0, 0, 1.0);
  x.Set(0, 1, 1.0009765625);
  Coded codes = Estimate({}, 2).Forward(x);
  ASSERT_TRUE(DequantizeFrom(codes, y).ok());
  EXPECT_EQ(y.bytes(), x.bytes());
}

// A recompute quantises with the ranges it has: equal codes, and no second update.
TEST(UpdateRangesTest, Mesa18RecomputeGivesTheSameCodes) {
  Matrix x(6, 97);
  x.Fill(51);
  Estimate estimate({}, 97);
  estimate.Forward(x);
  Coded codes = estimate.Forward(x);
  const Bytes before = codes.bytes();
  const Estimate state = estimate;
  ASSERT_TRUE(QuantizeInto(x, codes).ok());
  EXPECT_EQ(codes.bytes(), before);
  EXPECT_EQ(estimate.updates, state.updates);
  EXPECT_EQ(estimate.alpha, state.alpha);
}

TEST(UpdateRangesTest, SameBitsEveryWay) {
  for (const Layout& layout : kLayouts) {
    Matrix x(layout.N, layout.C);
    x.Fill(61);
    ExpectSameBitsEveryWay([&] { return Estimate(layout.grouping, layout.C).Forward(x).bytes(); });
  }
}

// Bit by bit what the CPU has, after updates on each. (On the CPU: twice.)
TEST(UpdateRangesTest, SameRangesOnTheCpuAndOnCuda) {
  for (const Layout& layout : kLayouts) {
    Estimate here(layout.grouping, layout.C), there(layout.grouping, layout.C);
    SharedVector<Range32> a(here.groups), b(here.groups);
    for (uint32_t call = 0; call < 3; ++call) {
      Matrix x(layout.N, layout.C, DType::kBF16);
      x.Fill(71 + call);
      ASSERT_TRUE(UpdateRanges(here.Params(x, a.data()), nullptr).ok());
      ASSERT_TRUE(UpdateRanges(there.Params(x, b.data()), TestStream()).ok());
      WaitForKernels();
    }
    EXPECT_EQ(memcmp(a.data(), b.data(), a.size() * sizeof(Range32)), 0) << layout.name;
    EXPECT_EQ(here.alpha, there.alpha);
    EXPECT_EQ(here.beta, there.beta);
  }
}

TEST(UpdateRangesTest, RefusesBadArguments) {
  Matrix x(3, 34);
  x.Fill(1);
  Estimate estimate({}, 34);
  const Estimate before = estimate;
  SharedVector<Range32> ranges(1, {5.0f, 6.0f});
  const auto refused = [&](auto change) {
    UpdateRangesParams p = estimate.Params(x, ranges.data());
    change(p);
    return Name(UpdateRanges(p, TestStream()));
  };
  using P = UpdateRangesParams;
  EXPECT_EQ(refused([](P& p) { p.x = nullptr; }), "null pointer: x");
  EXPECT_EQ(refused([](P& p) { p.beta = nullptr; }), "null pointer: beta");
  EXPECT_EQ(refused([](P& p) { p.updates = nullptr; }), "null pointer: updates");
  EXPECT_EQ(refused([](P& p) { p.ranges = nullptr; }), "null pointer: ranges");
  EXPECT_EQ(refused([](P& p) { p.workspace = nullptr; }), "null pointer: workspace");
  EXPECT_EQ(refused([](P& p) { p.x_stride = 2; }), "bad stride: x_stride");
  EXPECT_EQ(refused([](P& p) { p.decay = 1.0f; }), "bad value: decay");
  EXPECT_EQ(refused([](P& p) { p.decay = std::nanf(""); }), "bad value: decay");
  EXPECT_EQ(refused([](P& p) { p.grouping.group_columns = 4; }), "bad shape: group_columns");
  EXPECT_EQ(refused([](P& p) { p.grouping.run_rows = 0; }), "bad shape: run_rows");
  EXPECT_EQ(refused([](P& p) { p.grouping.row_groups = 0; }), "bad shape: row_groups");
  EXPECT_EQ(estimate.alpha, before.alpha);
  EXPECT_EQ(ranges[0].step, 5.0f);
}

}  // namespace
}  // namespace snug::kernels
