// Softmax of attention scores with a mask: against references in double, finite differences, and
// from codes of 8 bits.
#include "kernels/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Two batches of two heads of three queries: twelve rows of C scores, with a bias, a cap, a scale
// and a mask, of which each test takes what it wants.
constexpr int64_t kBatches = 2, kHeads = 2, kQueries = 3, kRows = kBatches * kHeads * kQueries;

struct Attention {
  Matrix x, p, dp, dx, bias;
  SharedVector<uint8_t> keys;
  ScoreMask mask = {.heads = kHeads, .queries = kQueries};
  float scale = 1.0f, softcap = 0.0f;
  bool has_bias = false;

  Attention(int64_t C, DType dtype, DType bias_dtype = DType::kF32)
      : x(kRows, C, dtype),
        p(kRows, C, dtype),
        dp(kRows, C, dtype),
        dx(kRows, C, dtype),
        bias(kHeads * kQueries, C, bias_dtype),
        keys(kBatches * (C + 8), 9) {
    x.Fill(1, 3.0);
    dp.Fill(2);
    bias.Fill(3);
    for (int64_t k = 0; k < kBatches * (C + 8); k += 3) keys[k] = 0;
  }
  void MaskKeys() {
    mask.keys = keys.data();
    mask.keys_stride = x.C() + 8;
  }
  void MaskFuture(int64_t window) {
    mask.causal = true;
    mask.first_key = x.C() - kQueries;
    mask.window = window;
  }
  SoftmaxForwardParams Forward() {
    return {.x = x.data(),
            .bias = has_bias ? bias.data() : nullptr,
            .p = p.data(),
            .N = kRows,
            .C = x.C(),
            .x_stride = x.stride(),
            .bias_stride = bias.stride(),
            .p_stride = p.stride(),
            .dtype = x.dtype(),
            .bias_dtype = bias.dtype(),
            .scale = scale,
            .softcap = softcap,
            .mask = mask};
  }
  SoftmaxBackwardParams Backward() {
    return {.p = p.data(),
            .dp = dp.data(),
            .x = softcap > 0.0f ? x.data() : nullptr,
            .dx = dx.data(),
            .N = kRows,
            .C = x.C(),
            .p_stride = p.stride(),
            .dp_stride = dp.stride(),
            .x_stride = x.stride(),
            .dx_stride = dx.stride(),
            .dtype = x.dtype(),
            .scale = scale,
            .softcap = softcap,
            .mask = mask};
  }

  // ---- the reference ----
  bool Visible(int64_t i, int64_t c) const {
    const int64_t batch = i / (kHeads * kQueries), last = mask.first_key + i % kQueries;
    if (mask.keys != nullptr && keys[batch * (x.C() + 8) + c] == 0) return false;
    if (!mask.causal) return true;
    return c <= last && (mask.window == 0 || c > last - mask.window);
  }
  double Score(double logit, int64_t i, int64_t c) const {
    const double scaled = static_cast<double>(scale) * logit, cap = static_cast<double>(softcap);
    const double s = cap == 0.0 ? scaled : cap * std::tanh(scaled / cap);
    return s + (has_bias ? bias.At(i % (kHeads * kQueries), c) : 0.0);
  }
  // Row i of the softmax of these logits.
  std::vector<double> Softmax(int64_t i, const std::function<double(int64_t)>& logit) const {
    std::vector<double> y(x.C(), 0.0);
    double max = -kInfinity, sum = 0.0;
    for (int64_t c = 0; c < x.C(); ++c) {
      if (Visible(i, c)) max = std::max(max, Score(logit(c), i, c));
    }
    for (int64_t c = 0; c < x.C(); ++c) {
      if (Visible(i, c)) sum += y[c] = std::exp(Score(logit(c), i, c) - max);
    }
    for (double& v : y) v = sum == 0.0 ? 0.0 : v / sum;
    return y;
  }
  Reference Probabilities() const {
    Reference all;
    for (int64_t i = 0; i < kRows; ++i) {
      const std::vector<double> y = Softmax(i, [&](int64_t c) { return x.At(i, c); });
      all.insert(all.end(), y.begin(), y.end());
    }
    return all;
  }
  Reference InputGradient(const Reference& y) const {
    const int64_t C = x.C();
    Reference dots(kRows, 0.0);
    for (int64_t k = 0; k < kRows * C; ++k) dots[k / C] += y[k] * dp.At(k / C, k % C);
    return Map(x, [&](int64_t i, int64_t c) {
      const double cap = static_cast<double>(softcap), s = static_cast<double>(scale);
      const double slope = cap == 0.0 ? 1.0 : std::pow(std::cosh(s * x.At(i, c) / cap), -2.0);
      return y[i * C + c] * (dp.At(i, c) - dots[i]) * s * slope;
    });
  }
};

// Every combination of bias, cap and mask at awkward widths.
template <typename Body>
void ForVariants(Body body) {
  for (DType dtype : kTypes) {
    for (int64_t C : {1, 31, 33, 64, 127, 1032, 2048, 4097}) {
      const int variants = C > 1000 && !OnCpu() ? 3 : 8;
      for (int variant = 0; variant < variants; ++variant) {
        SCOPED_TRACE(testing::Message() << C << " columns, variant " << variant);
        Attention a(C, dtype, kTypes[variant % 3]);
        a.has_bias = variant % 2 == 1;
        a.softcap = variant % 4 >= 2 ? 4.0f : 0.0f;
        a.scale = variant % 3 == 0 ? 1.0f : 0.3f;
        if (variant >= 4 || variant == 1) a.MaskKeys();
        if (variant % 3 == 2) a.MaskFuture(variant == 5 ? 17 : 0);
        body(a);
      }
    }
  }
}

TEST(SoftmaxTest, ForwardMatchesReferenceAndWorksInPlace) {
  ForVariants([](Attention& a) {
    ASSERT_TRUE(SoftmaxForward(a.Forward(), TestStream()).ok());
    const Reference expected = a.Probabilities();
    ExpectClose(a.p, expected, 1.2);
    for (int64_t k = 0; k < kRows * a.x.C(); ++k) {
      const int64_t i = k / a.x.C(), c = k % a.x.C();
      if (!a.Visible(i, c)) {
        ASSERT_EQ(a.p.At(i, c), 0.0);
      }
    }
    const std::vector<double> apart = Dense(a.p);
    SoftmaxForwardParams p = a.Forward();
    p.p = a.x.data();
    p.p_stride = a.x.stride();
    ASSERT_TRUE(SoftmaxForward(p, TestStream()).ok());
    EXPECT_EQ(Dense(a.x), apart);
  });
}

TEST(SoftmaxTest, BackwardMatchesReferenceAndWorksInPlace) {
  ForVariants([](Attention& a) {
    ASSERT_TRUE(SoftmaxForward(a.Forward(), TestStream()).ok());
    ASSERT_TRUE(SoftmaxBackward(a.Backward(), TestStream()).ok());
    if (a.x.C() > 1) ExpectClose(a.dx, a.InputGradient(Dense(a.p)), 1.5);
    const std::vector<double> apart = Dense(a.dx);
    SoftmaxBackwardParams p = a.Backward();
    p.dx = a.dp.data();
    p.dx_stride = a.dp.stride();
    ASSERT_TRUE(SoftmaxBackward(p, TestStream()).ok());
    EXPECT_EQ(Dense(a.dp), apart);
  });
}

// Of sum(dp * softmax(x)), without the header's formula; and of the bias: the sum over batches.
TEST(SoftmaxTest, BackwardMatchesFiniteDifferences) {
  Attention a(33, DType::kF32);
  a.has_bias = true;
  a.softcap = 4.0f;
  a.scale = 0.5f;
  a.MaskKeys();
  a.MaskFuture(20);
  ASSERT_TRUE(SoftmaxForward(a.Forward(), TestStream()).ok());
  ASSERT_TRUE(SoftmaxBackward(a.Backward(), TestStream()).ok());
  const Reference expected = FiniteDifferences(Dense(a.x), [&](const std::vector<double>& x) {
    double loss = 0.0;
    for (int64_t i = 0; i < kRows; ++i) {
      const std::vector<double> y = a.Softmax(i, [&](int64_t c) { return x[i * 33 + c]; });
      for (int64_t c = 0; c < 33; ++c) loss += a.dp.At(i, c) * y[c];
    }
    return loss;
  });
  EXPECT_LE(RelativeError(a.dx, expected), 2e-6);
}

// Probabilities as codes of a head's range: the gradient is the formula's of what the codes say,
// and 0 where the mask is, whatever they say there.
TEST(SoftmaxTest, BackwardFromCodesMatchesReference) {
  for (DType dtype : kTypes) {
    for (int64_t C : {1, 31, 33, 64, 127, 2048, 4097}) {
      SCOPED_TRACE(C);
      Attention a(C, dtype);
      a.MaskKeys();
      SharedVector<uint8_t> codes(kRows * (C + 16));
      SharedVector<float> step = {1.0f / 255.0f, 0.7f / 255.0f}, minimum = {0.0f, 0.01f};
      for (size_t k = 0; k < codes.size(); ++k) codes[k] = static_cast<uint8_t>(k * 37 % 256);
      SoftmaxBackwardParams p = a.Backward();
      p.p = nullptr;
      p.codes = codes.data();
      p.codes_stride = C + 16;
      p.step = step.data();
      p.minimum = minimum.data();
      p.groups = kHeads;
      p.rows_per_group = kQueries;
      ASSERT_TRUE(SoftmaxBackward(p, TestStream()).ok());
      const Reference y = Map(a.x, [&](int64_t i, int64_t c) {
        const size_t head = static_cast<size_t>(i / kQueries % kHeads);
        const double code = codes[static_cast<size_t>(i * (C + 16) + c)];
        return a.Visible(i, c) ? minimum[head] + step[head] * code : 0.0;
      });
      ExpectClose(a.dx, a.InputGradient(y), 1.5);
      for (int64_t c = 0; c < C; ++c) {
        if (!a.Visible(0, c)) {
          ASSERT_EQ(a.dx.At(0, c), 0.0);
        }
      }
    }
  }
}

// MESA-13: codes that say exactly what the output was give the plain gradient.
TEST(SoftmaxTest, Mesa13ExactCodesGiveThePlainGradient) {
  for (int64_t C : {31, 33, 127, 2048}) {
    Attention a(C, DType::kF32);
    a.scale = 0.3f;
    SharedVector<uint8_t> codes(static_cast<size_t>(kRows * C));
    SharedVector<float> step = {1.0f / 256.0f}, minimum = {0.0f};
    for (int64_t k = 0; k < kRows * C; ++k) {
      codes[static_cast<size_t>(k)] = static_cast<uint8_t>(k * 37 % 256);
      a.p.Set(k / C, k % C, static_cast<double>(k * 37 % 256) / 256.0);  // Exact in fp32.
    }
    ASSERT_TRUE(SoftmaxBackward(a.Backward(), TestStream()).ok());
    const Reference plain = Dense(a.dx);
    SoftmaxBackwardParams p = a.Backward();
    p.p = nullptr;
    p.codes = codes.data();
    p.codes_stride = C;
    p.step = step.data();
    p.minimum = minimum.data();
    p.groups = 1;
    p.rows_per_group = kRows;
    ASSERT_TRUE(SoftmaxBackward(p, TestStream()).ok());
    ExpectClose(a.dx, plain);
  }
}

// MESA-13: with the codes of a real softmax, whose values do not add up to 1, a row's gradient adds
// up to (sum of y dy) (1 - sum of y) and not to 0.
TEST(SoftmaxTest, Mesa13RowsOfCodedGradientsDoNotAddUpToZero) {
  constexpr int64_t C = 127;
  Attention a(C, DType::kF32);
  ASSERT_TRUE(SoftmaxForward(a.Forward(), TestStream()).ok());
  WaitForKernels();
  double most = 0.0;
  for (double y : Dense(a.p)) most = std::max(most, y);
  SharedVector<float> step = {static_cast<float>(most / 255.0)}, minimum = {0.0f};
  SharedVector<uint8_t> codes(static_cast<size_t>(kRows * C));
  for (int64_t k = 0; k < kRows * C; ++k) {
    const double level = a.p.At(k / C, k % C) / static_cast<double>(step[0]);
    codes[static_cast<size_t>(k)] = static_cast<uint8_t>(std::lround(std::min(level, 255.0)));
  }
  SoftmaxBackwardParams p = a.Backward();
  p.p = nullptr;
  p.codes = codes.data();
  p.codes_stride = C;
  p.step = step.data();
  p.minimum = minimum.data();
  p.groups = 1;
  p.rows_per_group = kRows;
  ASSERT_TRUE(SoftmaxBackward(p, TestStream()).ok());
  for (int64_t i = 0; i < kRows; ++i) {
    double sum = 0.0, coded = 0.0, product = 0.0, magnitude = 0.0;
    for (int64_t c = 0; c < C; ++c) {
      const double y = static_cast<double>(step[0]) * codes[static_cast<size_t>(i * C + c)];
      coded += y;
      product += y * a.dp.At(i, c);
      sum += a.dx.At(i, c);
      magnitude += std::abs(a.dx.At(i, c));
    }
    EXPECT_NEAR(sum, product * (1.0 - coded), 1e-6 * magnitude);
    EXPECT_GT(std::abs(sum), 1e-5 * magnitude) << "the control: codes that add up to 1";
  }
}

// A row that sees nothing has no probabilities and no gradient, by any mask, and no NaN.
TEST(SoftmaxTest, RowsThatSeeNothing) {
  Attention a(40, DType::kBF16);
  std::fill(a.keys.begin(), a.keys.begin() + 48, uint8_t{0});  // The first batch.
  a.MaskKeys();
  a.has_bias = true;
  for (int64_t c = 0; c < 40; ++c) a.bias.Set(4, c, -kInfinity);  // Its head 1, query 1.
  ASSERT_TRUE(SoftmaxForward(a.Forward(), TestStream()).ok());
  ASSERT_TRUE(SoftmaxBackward(a.Backward(), TestStream()).ok());
  for (int64_t c = 0; c < 40; ++c) {
    for (int64_t i : {0, 5, 10}) {
      ASSERT_EQ(a.p.At(i, c), 0.0);
      ASSERT_EQ(a.dx.At(i, c), 0.0);
    }
  }
  EXPECT_GT(a.p.At(6, 20) + a.p.At(6, 19), 0.0);
  Attention before_all(33, DType::kF32);
  before_all.MaskFuture(0);
  before_all.mask.first_key = -2;
  ASSERT_TRUE(SoftmaxForward(before_all.Forward(), TestStream()).ok());
  EXPECT_EQ(before_all.p.At(0, 0), 0.0);
  EXPECT_EQ(before_all.p.At(2, 0), 1.0);
}

// A NaN among the scores that are visible shows in its row alone, one that is not does not.
TEST(SoftmaxTest, NanStaysInItsRow) {
  Attention a(33, DType::kF32);
  a.MaskKeys();
  for (int64_t c : {3, 4}) a.x.Set(1, c, std::nan(""));
  a.x.Set(2, 3, std::nan(""));
  ASSERT_FALSE(a.Visible(1, 3));
  ASSERT_TRUE(a.Visible(1, 4));
  ASSERT_TRUE(SoftmaxForward(a.Forward(), TestStream()).ok());
  EXPECT_TRUE(std::isfinite(a.p.At(0, 1)) && std::isfinite(a.p.At(2, 1)));
  EXPECT_TRUE(std::isnan(a.p.At(1, 1)));
}

// The same where nothing is masked, capped or added; a row of nothing but -inf has no
// probabilities.
TEST(SoftmaxTest, PlainRowsShowWhatIsNotFinite) {
  for (DType dtype : kTypes) {
    Attention a(33, dtype);
    for (int64_t c = 0; c < 33; ++c) a.x.Set(0, c, -kInfinity);
    a.x.Set(1, 20, std::nan(""));
    a.x.Set(2, 32, -std::nan(""));
    a.x.Set(3, 7, kInfinity);
    a.x.Set(4, 7, -kInfinity);
    ASSERT_TRUE(SoftmaxForward(a.Forward(), TestStream()).ok());
    for (int64_t c = 0; c < 33; ++c) {
      EXPECT_EQ(a.p.At(0, c), 0.0);
      EXPECT_TRUE(std::isnan(a.p.At(1, c)) && std::isnan(a.p.At(2, c)));
      EXPECT_TRUE(std::isfinite(a.p.At(4, c)) && std::isfinite(a.p.At(5, c)));
    }
    EXPECT_TRUE(std::isnan(a.p.At(3, 7)));
    EXPECT_EQ(a.p.At(4, 7), 0.0);
  }
}

TEST(SoftmaxTest, SameBitsForAllThreadCountsAndInstructionSets) {
  for (DType dtype : kTypes) {
    Attention a(4999, dtype);
    a.has_bias = true;
    a.softcap = 5.0f;
    a.MaskKeys();
    a.MaskFuture(4100);
    ExpectSameBitsEveryWay([&] {
      EXPECT_TRUE(SoftmaxForward(a.Forward(), TestStream()).ok());
      EXPECT_TRUE(SoftmaxBackward(a.Backward(), TestStream()).ok());
      Bytes bytes = a.p.bytes();
      bytes.insert(bytes.end(), a.dx.bytes().begin(), a.dx.bytes().end());
      return bytes;
    });
  }
}

TEST(SoftmaxTest, RefusesBadArguments) {
  Attention a(33, DType::kF32);
  const Bytes before = a.p.bytes(), dx_before = a.dx.bytes();
  const auto refused = [&](auto change) {
    SoftmaxForwardParams p = a.Forward();
    change(p);
    return Name(SoftmaxForward(p, TestStream()));
  };
  using P = SoftmaxForwardParams;
  EXPECT_EQ(refused([](P& p) { p.x = nullptr; }), "null pointer: x");
  EXPECT_EQ(refused([](P& p) { p.p_stride = 32; }), "bad stride: p_stride");
  EXPECT_EQ(refused([](P& p) { p.mask.queries = 5; }), "bad shape: N");
  EXPECT_EQ(refused([](P& p) { p.mask.heads = 0; }), "bad shape: mask.heads");
  EXPECT_EQ(refused([](P& p) { p.mask.window = 3; }), "bad value: mask.window");
  EXPECT_EQ(refused([](P& p) { p.softcap = -1.0f; }), "bad value: softcap");
  EXPECT_EQ(refused([](P& p) { p.scale = INFINITY; }), "bad value: scale");
  EXPECT_EQ(refused([](P& p) { p.dtype = static_cast<DType>(7); }), "bad dtype: dtype");
  EXPECT_EQ(refused([&](P& p) { p.bias = a.bias.data(), p.bias_stride = 8; }),
            "bad stride: bias_stride");
  EXPECT_EQ(refused([&](P& p) { p.mask.keys = a.keys.data(), p.mask.keys_stride = 8; }),
            "bad stride: mask.keys_stride");
  const auto refused_backward = [&](auto change) {
    SoftmaxBackwardParams p = a.Backward();
    change(p);
    return Name(SoftmaxBackward(p, TestStream()));
  };
  using B = SoftmaxBackwardParams;
  EXPECT_EQ(refused_backward([](B& p) { p.p = nullptr; }), "null pointer: p");
  EXPECT_EQ(refused_backward([&](B& p) { p.codes = a.keys.data(); }), "bad value: p");
  EXPECT_EQ(
      refused_backward([&](B& p) { p.p = nullptr, p.codes = a.keys.data(), p.codes_stride = 33; }),
      "null pointer: step");
  EXPECT_EQ(refused_backward([](B& p) { p.softcap = 2.0f; }), "null pointer: x");
  EXPECT_EQ(refused_backward([](B& p) { p.dx_stride = 1; }), "bad stride: dx_stride");
  EXPECT_EQ(a.p.bytes(), before);
  EXPECT_EQ(a.dx.bytes(), dx_before);
}

}  // namespace
}  // namespace snug::kernels
