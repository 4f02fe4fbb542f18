// Softmax cross-entropy against a reference in double and against finite differences; smoothing,
// z-loss and ignored labels are cross_entropy_options_test's.
#include "kernels/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "tests/kernels/cross_entropy_testing.h"

namespace snug::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double LogSumExp(const Matrix& x, int64_t i) {
  double max = -kInfinity, sum = 0.0;
  for (int64_t v = 0; v < x.C(); ++v) max = std::max(max, x.At(i, v));
  for (int64_t v = 0; v < x.C(); ++v) sum += std::exp(x.At(i, v) - max);
  return max + std::log(sum);
}

TEST(CrossEntropyTest, LossAndGradientMatchReference) {
  for (DType dtype : kTypes) {
    for (int64_t V : {1, 2, 31, 33, 127, 4097, 12289, 40000}) {  // The last: wide, and not held.
      SCOPED_TRACE(testing::Message() << V << " classes");
      Chunk chunk(5, V, dtype);
      ASSERT_TRUE(RunLoss(chunk.Params()).ok());
      Reference lse;
      for (int64_t i = 0; i < 5; ++i) {
        lse.push_back(LogSumExp(chunk.logits, i));
        const double loss = chunk.weights[i] * (lse[i] - chunk.logits.At(i, chunk.labels[i]));
        EXPECT_NEAR(chunk.loss[i], loss, 3e-7 * std::max(1.0, loss));
      }
      ExpectClose(chunk.dlogits, Map(chunk.dlogits, [&](int64_t i, int64_t v) {
                    const double p = std::exp(chunk.logits.At(i, v) - lse[i]);
                    return 0.125 * chunk.weights[i] * (p - (v == chunk.labels[i] ? 1.0 : 0.0));
                  }));
    }
  }
}

// Capped: x = c tanh(logits / c), the gradient with the slope 1 - (x / c)^2; the largest logits of
// some rows are far beyond the cap. In the logits' place it gives the same.
TEST(CrossEntropyTest, SoftcapMatchesReference) {
  constexpr double kCap = 5.0;
  for (DType dtype : kTypes) {
    for (int64_t V : {1, 2, 31, 33, 127, 4097, 12289}) {
      SCOPED_TRACE(testing::Message() << V << " classes");
      Chunk chunk(5, V, dtype);
      chunk.logits.Fill(1, 6.0);
      const Matrix logits = chunk.logits;
      const auto capped = [&](int64_t i, int64_t v) {
        return kCap * std::tanh(logits.At(i, v) / kCap);
      };
      CrossEntropyParams params = chunk.Params();
      params.softcap = kCap;
      ASSERT_TRUE(RunLoss(params).ok());
      Reference lse;
      for (int64_t i = 0; i < 5; ++i) {
        double sum = 0.0;
        for (int64_t v = 0; v < V; ++v) sum += std::exp(capped(i, v));
        lse.push_back(std::log(sum));
        const double loss = chunk.weights[i] * (lse[i] - capped(i, chunk.labels[i]));
        EXPECT_NEAR(chunk.loss[i], loss, 1e-6 * std::max(1.0, loss));
      }
      const auto gradient = [&](int64_t i, int64_t v) {
        const double slope = 1.0 / std::pow(std::cosh(logits.At(i, v) / kCap), 2.0);
        const double p = std::exp(capped(i, v) - lse[i]) - (v == chunk.labels[i] ? 1.0 : 0.0);
        return 0.125 * chunk.weights[i] * p * slope;
      };
      if (V > 1) ExpectClose(chunk.dlogits, Map(chunk.dlogits, gradient), 2.0);
      const std::vector<double> apart = Dense(chunk.dlogits);
      params.dlogits = chunk.logits.data();
      params.dlogits_stride = params.logits_stride;
      ASSERT_TRUE(RunLoss(params).ok());
      EXPECT_EQ(Dense(chunk.logits), apart);
    }
  }
}

// Over one class the entropy is 0; over many it is that of the distribution, also where the
// gradient takes the logits' place.
TEST(CrossEntropyTest, EntropyAndTheLikeliestMatchReference) {
  for (DType dtype : kTypes) {
    for (int64_t V : {1, 2, 31, 33, 127, 4097, 12289}) {
      SCOPED_TRACE(testing::Message() << V << " classes");
      Chunk chunk(5, V, dtype);
      const Matrix logits = chunk.logits;
      for (int64_t v = 0; v < V; ++v) {
        if (chunk.logits.At(3, v) > chunk.logits.At(3, chunk.labels[3]))
          chunk.labels[3] = static_cast<int32_t>(v);
      }
      SharedVector<double> entropy(5);
      SharedVector<int32_t> correct(5, -1);
      CrossEntropyParams params = chunk.Params();
      params.dlogits = chunk.logits.data();
      params.dlogits_stride = params.logits_stride;
      params.row_entropy = entropy.data();
      params.row_correct = correct.data();
      ASSERT_TRUE(RunLoss(params).ok());
      for (int64_t i = 0; i < 5; ++i) {
        const double lse = LogSumExp(logits, i);
        double expected = 0.0;
        bool likeliest = true;
        for (int64_t v = 0; v < V; ++v) {
          expected -= std::exp(logits.At(i, v) - lse) * (logits.At(i, v) - lse);
          likeliest = likeliest && logits.At(i, v) <= logits.At(i, chunk.labels[i]);
        }
        EXPECT_NEAR(entropy[i], expected, 2e-6 * std::max(1.0, expected));
        EXPECT_EQ(correct[i], likeliest ? 1 : 0);
      }
      EXPECT_EQ(correct[3], 1);
    }
  }
}

TEST(CrossEntropyTest, GradientMatchesFiniteDifferences) {
  Chunk chunk(2, 33, DType::kF32);
  chunk.logits.Fill(2);
  ASSERT_TRUE(RunLoss(chunk.Params()).ok());
  const Reference expected =
      FiniteDifferences(Dense(chunk.logits), [&](const std::vector<double>& x) {
        double loss = 0.0;
        for (int64_t i = 0; i < 2; ++i) {
          double sum = 0.0;
          for (int64_t v = 0; v < 33; ++v) sum += std::exp(x[i * 33 + v]);
          loss += 0.125 * chunk.weights[i] * (std::log(sum) - x[i * 33 + chunk.labels[i]]);
        }
        return loss;
      });
  EXPECT_LE(RelativeError(chunk.dlogits, expected), 1e-6);
}

// In place, without a gradient, and with labels of 64 bits: the same numbers.
TEST(CrossEntropyTest, VariantsAgree) {
  for (DType dtype : kTypes) {
    Chunk chunk(4, 1031, dtype);
    ASSERT_TRUE(RunLoss(chunk.Params()).ok());
    const SharedVector<double> loss = chunk.loss;

    CrossEntropyParams forward = chunk.Params();
    forward.dlogits = nullptr;
    SharedVector<double> sum(1, 2.0);
    forward.loss_sum = sum.data();
    ASSERT_TRUE(RunLoss(forward).ok());
    EXPECT_EQ(chunk.loss, loss);
    EXPECT_EQ(sum[0], 2.0 + loss[0] + loss[1] + loss[2] + loss[3]);

    const SharedVector<int64_t> wide(chunk.labels.begin(), chunk.labels.end());
    CrossEntropyParams in_place = chunk.Params();
    in_place.labels = wide.data();
    in_place.label_type = IndexType::kI64;
    in_place.dlogits = chunk.logits.data();
    ASSERT_TRUE(RunLoss(in_place).ok());
    EXPECT_EQ(chunk.loss, loss);
    EXPECT_EQ(chunk.logits.bytes(), chunk.dlogits.bytes());
  }
}

// Logits of a thousand: the maximum is subtracted first.
TEST(CrossEntropyTest, LargeLogitsDoNotOverflow) {
  Chunk chunk(1, 33, DType::kF32);
  for (int64_t v = 0; v < 33; ++v) chunk.logits.Set(0, v, v == 5 ? 1000.0 : -1000.0);
  chunk.labels[0] = 4;
  ASSERT_TRUE(RunLoss(chunk.Params()).ok());
  EXPECT_EQ(chunk.loss[0], 2000.0);
  EXPECT_EQ(chunk.dlogits.At(0, 4), -0.125);
  EXPECT_EQ(chunk.dlogits.At(0, 5), 0.125);
}

// A row of weight 0 needs no label, adds nothing and has no gradient.
TEST(CrossEntropyTest, RowOfWeightZeroIsMasked) {
  Chunk chunk(3, 31, DType::kF32);
  chunk.weights[1] = 0.0f;
  chunk.labels[1] = -100;
  ASSERT_TRUE(RunLoss(chunk.Params()).ok());
  EXPECT_EQ(chunk.loss[1], 0.0);
  for (int64_t v = 0; v < 31; ++v) EXPECT_EQ(chunk.dlogits.At(1, v), 0.0);
  EXPECT_GT(chunk.loss[2], 0.0);
}

// Whatever is not finite, wherever it stands, shows in the loss and in the gradient, even of a row
// that has no weight, and behind a cap, which makes a finite number of it. -inf would otherwise
// pass for a class that cannot be.
TEST(CrossEntropyTest, NothingHidesANonFiniteLogit) {
  for (DType dtype : kTypes) {
    for (double bad : {kNan, kInfinity, -kInfinity}) {
      for (int64_t at : {0, 17, 32}) {
        for (const auto& [weight, cap] :
             {std::pair{1.0f, 0.0f}, {0.0f, 0.0f}, {1.0f, 5.0f}, {0.0f, 5.0f}}) {
          Chunk chunk(2, 33, dtype);
          chunk.logits.Set(1, at, bad);
          chunk.weights[1] = weight;
          CrossEntropyParams p = chunk.Params();
          p.softcap = cap;
          ASSERT_TRUE(RunLoss(p).ok());
          EXPECT_TRUE(std::isfinite(chunk.loss[0]));
          EXPECT_TRUE(std::isnan(chunk.loss[1])) << bad << " at " << at << ", cap " << cap;
          EXPECT_TRUE(std::isnan(chunk.dlogits.At(1, 3))) << bad << " at " << at << ", cap " << cap;
        }
      }
    }
  }
}

TEST(CrossEntropyTest, SameBitsForAllThreadCountsAndInstructionSets) {
  for (DType dtype : kTypes) {
    Chunk chunk(23, 4999, dtype);
    ExpectSameBitsEveryWay([&] {
      SharedVector<double> sum(1, 0.0);
      CrossEntropyParams p = chunk.Params();
      p.loss_sum = sum.data();
      EXPECT_TRUE(RunLoss(p).ok());
      Bytes bytes = chunk.dlogits.bytes();
      const uint8_t* sum_bytes = reinterpret_cast<const uint8_t*>(sum.data());
      bytes.insert(bytes.end(), sum_bytes, sum_bytes + sizeof(double));
      return bytes;
    });
  }
}

// Chunks of one row and one chunk of all: the same sum, to the bit.
TEST(CrossEntropyTest, SameBitsHoweverRowsAreDivided) {
  Chunk chunk(9, 257, DType::kF32);
  SharedVector<double> together(1, 0.0), apart(1, 0.0);
  CrossEntropyParams p = chunk.Params();
  p.loss_sum = together.data();
  ASSERT_TRUE(RunLoss(p).ok());
  p.loss_sum = apart.data();
  p.N = 1;
  for (int64_t i = 0; i < 9; ++i) {
    p.logits = chunk.logits.row(i);
    p.dlogits = chunk.logits.row(i);
    p.labels = chunk.labels.data() + i;
    p.weights = chunk.weights.data() + i;
    ASSERT_TRUE(RunLoss(p).ok());
  }
  EXPECT_EQ(apart, together);
  EXPECT_EQ(chunk.logits.bytes(), chunk.dlogits.bytes());
}

// Only the CPU can look at labels before it begins: elsewhere a bad one shows in its row.
TEST(CrossEntropyTest, BadLabelIsRefusedOrShowsInItsRow) {
  for (int32_t label : {31, -100}) {
    Chunk chunk(2, 31, DType::kF32);
    const Bytes before = chunk.dlogits.bytes();
    chunk.labels[1] = label;  // -100: masked by label, but not by weight.
    const Error error = RunLoss(chunk.Params());
    if (OnCpu()) {
      EXPECT_EQ(Name(error), "bad index: labels");
      EXPECT_EQ(chunk.dlogits.bytes(), before);
    } else {
      ASSERT_TRUE(error.ok());
      EXPECT_TRUE(std::isfinite(chunk.loss[0]) && std::isfinite(chunk.dlogits.At(0, 3)));
      EXPECT_TRUE(std::isnan(chunk.loss[1]) && std::isnan(chunk.dlogits.At(1, 3)));
    }
  }
}

// ---- gradients of any size ----------------------------------------------------------------------

// MST-6: the gradient follows its scale, to the bit for powers of two.
TEST(CrossEntropyTest, Mst6GradientFollowsItsScale) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    Chunk chunk(3, 507, dtype);
    ASSERT_TRUE(RunLoss(chunk.Params()).ok());
    const Matrix before = chunk.dlogits;
    for (float alpha : {0.5f, 1024.0f, -1.0f}) {
      CrossEntropyParams p = chunk.Params();
      p.scale *= alpha;
      ASSERT_TRUE(RunLoss(p).ok());
      for (int64_t k = 0; k < 3 * 507; ++k) {
        const double was = before.At(k / 507, k % 507);
        ASSERT_EQ(chunk.dlogits.At(k / 507, k % 507), static_cast<double>(alpha) * was);
      }
    }
  }
}

// MST-9: of a token that the model is sure of the label's gradient is p - 1 = -5e-4. A softmax in
// bf16, less 1, would be 0.
TEST(CrossEntropyTest, Mst9ConfidentTokenKeepsItsGradient) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    Chunk chunk(1, 1001, dtype);
    for (int64_t v = 0; v < 1001; ++v) chunk.logits.Set(0, v, 0.0);
    chunk.logits.Set(0, 7, std::log(1000.0 * (1.0 - 5e-4) / 5e-4));
    chunk.labels[0] = 7;
    const double p = std::exp(chunk.logits.At(0, 7)) / (std::exp(chunk.logits.At(0, 7)) + 1000.0);
    CrossEntropyParams params = chunk.Params();
    params.weights = nullptr;
    params.scale = 1.0f;
    ASSERT_TRUE(RunLoss(params).ok());
    EXPECT_NEAR(chunk.dlogits.At(0, 7), p - 1.0, 5e-6);
    EXPECT_EQ(ToFloat(ToBf16(static_cast<float>(p))) - 1.0f, 0.0f) << "the control";
  }
}

TEST(CrossEntropyTest, RefusesBadArguments) {
  Chunk chunk(2, 31, DType::kF32);
  const Bytes before = chunk.dlogits.bytes();
  const auto refused = [&](auto change) {
    CrossEntropyParams p = chunk.Params();
    change(p);
    return Name(RunLoss(p));
  };
  using P = CrossEntropyParams;
  EXPECT_EQ(refused([](P& p) { p.labels = nullptr; }), "null pointer: labels");
  EXPECT_EQ(refused([](P& p) { p.row_loss = nullptr; }), "null pointer: row_loss");
  EXPECT_EQ(refused([](P& p) { p.V = 0; }), "bad shape: V");
  EXPECT_EQ(refused([](P& p) { p.logits_stride = 3; }), "bad stride: logits_stride");
  EXPECT_EQ(refused([](P& p) { p.softcap = -1.0f; }), "bad value: softcap");
  EXPECT_EQ(refused([](P& p) { p.label_smoothing = 1.0f; }), "bad value: label_smoothing");
  EXPECT_EQ(refused([](P& p) { p.z_loss = std::nanf(""); }), "bad value: z_loss");
  EXPECT_EQ(chunk.dlogits.bytes(), before);
}

}  // namespace
}  // namespace snug::kernels
