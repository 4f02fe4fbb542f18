// Softmax cross-entropy against a reference in double and against finite differences.
#include "kernels/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// What ran on a device has run before the host looks.
Error RunLoss(const CrossEntropyParams& p) {
  const Error error = CrossEntropy(p, TestStream());
  WaitForKernels();
  return error;
}

// A chunk of rows with labels and weights drawn from their numbers.
struct Chunk {
  Matrix logits, dlogits;
  SharedVector<int32_t> labels;
  SharedVector<float> weights;
  SharedVector<double> loss;

  Chunk(int64_t N, int64_t V, DType dtype)
      : logits(N, V, dtype), dlogits(N, V, dtype), loss(N, kNan) {
    logits.Fill(1, 4.0);
    for (int64_t i = 0; i < N; ++i) {
      labels.push_back(static_cast<int32_t>((i * 7919 + V - 1) % V));
      weights.push_back(1.0f + 0.25f * static_cast<float>(i % 3));
    }
  }
  CrossEntropyParams Params() {
    return {.logits = logits.data(),
            .dlogits = dlogits.data(),
            .labels = labels.data(),
            .weights = weights.data(),
            .row_loss = loss.data(),
            .N = logits.N(),
            .V = logits.C(),
            .logits_stride = logits.stride(),
            .dlogits_stride = dlogits.stride(),
            .dtype = logits.dtype(),
            .scale = 0.125f};
  }
};

double LogSumExp(const Matrix& x, int64_t i) {
  double max = -kInfinity, sum = 0.0;
  for (int64_t v = 0; v < x.C(); ++v) max = std::max(max, x.At(i, v));
  for (int64_t v = 0; v < x.C(); ++v) sum += std::exp(x.At(i, v) - max);
  return max + std::log(sum);
}

TEST(CrossEntropyTest, LossAndGradientMatchReference) {
  for (DType dtype : kTypes) {
    for (int64_t V : {1, 2, 31, 33, 127, 4097, 12289}) {
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
// that has no weight. -inf would otherwise pass for a class that cannot be.
TEST(CrossEntropyTest, NothingHidesANonFiniteLogit) {
  for (DType dtype : kTypes) {
    for (double bad : {kNan, kInfinity, -kInfinity}) {
      for (int64_t at : {0, 17, 32}) {
        for (float weight : {1.0f, 0.0f}) {
          Chunk chunk(2, 33, dtype);
          chunk.logits.Set(1, at, bad);
          chunk.weights[1] = weight;
          ASSERT_TRUE(RunLoss(chunk.Params()).ok());
          EXPECT_TRUE(std::isfinite(chunk.loss[0]));
          EXPECT_TRUE(std::isnan(chunk.loss[1])) << bad << " at " << at;
          EXPECT_TRUE(std::isnan(chunk.dlogits.At(1, 3)));
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

// ---- smoothing, z-loss, ignored labels ----------------------------------------------------------

// The header's loss of row i in double, of any logits.
double RegularisedLoss(const std::function<double(int64_t)>& x, int64_t V, int64_t label,
                       double smoothing, double z_loss) {
  double sum = 0.0, mean = 0.0;
  for (int64_t v = 0; v < V; ++v) {
    sum += std::exp(x(v));
    mean += x(v) / static_cast<double>(V);
  }
  const double lse = std::log(sum);
  return lse - (1.0 - smoothing) * x(label) - smoothing * mean + z_loss * lse * lse;
}

// MST-8: with and without a cap, beside the logits and in their place.
TEST(CrossEntropyTest, Mst8SmoothingAndZLossMatchReference) {
  for (DType dtype : kTypes) {
    for (int64_t V : {1, 2, 31, 33, 127, 507, 4097, 12288}) {
      for (double cap : {0.0, 5.0}) {
        SCOPED_TRACE(testing::Message() << V << " classes, cap " << cap);
        Chunk chunk(3, V, dtype);
        const Matrix logits = chunk.logits;
        const auto capped = [&](int64_t i, int64_t v) {
          return cap == 0.0 ? logits.At(i, v) : cap * std::tanh(logits.At(i, v) / cap);
        };
        CrossEntropyParams p = chunk.Params();
        p.softcap = static_cast<float>(cap);
        p.label_smoothing = 0.125f;
        p.z_loss = 0.0625f;
        ASSERT_TRUE(RunLoss(p).ok());
        Reference lse;
        for (int64_t i = 0; i < 3; ++i) {
          double sum = 0.0;
          for (int64_t v = 0; v < V; ++v) sum += std::exp(capped(i, v));
          lse.push_back(std::log(sum));
          const double loss =
              chunk.weights[i] * RegularisedLoss([&](int64_t v) { return capped(i, v); }, V,
                                                 chunk.labels[i], 0.125, 0.0625);
          EXPECT_NEAR(chunk.loss[i], loss, 1e-6 * std::max(1.0, std::abs(loss)));
        }
        if (V > 1) {
          ExpectClose(chunk.dlogits,
                      Map(chunk.dlogits,
                          [&](int64_t i, int64_t v) {
                            const double slope =
                                cap == 0.0 ? 1.0
                                           : 1.0 / std::pow(std::cosh(logits.At(i, v) / cap), 2.0);
                            const double target = (v == chunk.labels[i] ? 0.875 : 0.0) + 0.125 / V;
                            const double softmax = std::exp(capped(i, v) - lse[i]);
                            return 0.125 * chunk.weights[i] * slope *
                                   (softmax * (1.0 + 2.0 * 0.0625 * lse[i]) - target);
                          }),
                      2.0);
        }
        const std::vector<double> apart = Dense(chunk.dlogits);
        p.dlogits = chunk.logits.data();
        p.dlogits_stride = p.logits_stride;
        ASSERT_TRUE(RunLoss(p).ok());
        EXPECT_EQ(Dense(chunk.logits), apart);
      }
    }
  }
}

TEST(CrossEntropyTest, SmoothedGradientMatchesFiniteDifferences) {
  Chunk chunk(2, 33, DType::kF32);
  chunk.logits.Fill(2);
  CrossEntropyParams p = chunk.Params();
  p.label_smoothing = 0.3f;
  p.z_loss = 0.01f;
  ASSERT_TRUE(RunLoss(p).ok());
  const Reference expected =
      FiniteDifferences(Dense(chunk.logits), [&](const std::vector<double>& x) {
        double loss = 0.0;
        for (int64_t i = 0; i < 2; ++i) {
          loss += 0.125 * chunk.weights[i] *
                  RegularisedLoss([&](int64_t v) { return x[i * 33 + v]; }, 33, chunk.labels[i],
                                  static_cast<double>(0.3f), static_cast<double>(0.01f));
        }
        return loss;
      });
  EXPECT_LE(RelativeError(chunk.dlogits, expected), 1e-6);
}

// MST-5: a chunk of ignored rows has loss 0, gradient 0, and no NaN; others are what they were.
TEST(CrossEntropyTest, Mst5IgnoredRowsAddNothing) {
  Chunk chunk(4, 127, DType::kBF16);
  ASSERT_TRUE(RunLoss(chunk.Params()).ok());
  const Matrix before = chunk.dlogits;
  const double loss = chunk.loss[2];
  for (int64_t i : {0, 1, 3}) chunk.labels[i] = -100;
  CrossEntropyParams p = chunk.Params();
  p.ignore_label = -100;
  p.z_loss = 0.1f;
  ASSERT_TRUE(RunLoss(p).ok());
  EXPECT_EQ(chunk.loss[0] + chunk.loss[1] + chunk.loss[3], 0.0);
  for (int64_t v = 0; v < 127; ++v) EXPECT_EQ(chunk.dlogits.At(1, v), 0.0);
  p.z_loss = 0.0f;
  ASSERT_TRUE(RunLoss(p).ok());
  EXPECT_EQ(chunk.loss[2], loss);
  for (int64_t v = 0; v < 127; ++v) EXPECT_EQ(chunk.dlogits.At(2, v), before.At(2, v));
  chunk.labels[2] = -100;
  ASSERT_TRUE(RunLoss(p).ok());
  EXPECT_EQ(chunk.loss[2], 0.0);
}

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
