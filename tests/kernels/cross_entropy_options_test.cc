// Cross-entropy with smoothing, z-loss, a bias of the classes and ignored labels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "kernels/bias.h"
#include "kernels/column_sums.h"
#include "kernels/cross_entropy.h"
#include "kernels/rows.h"
#include "tests/kernels/cross_entropy_testing.h"

namespace snug::kernels {
namespace {

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

// Of two labels the loss is the mean of theirs by their shares, smoothed and capped as of one; a
// second label that is negative, or the first one again, is none.
TEST(CrossEntropyTest, TwoLabelsMatchReference) {
  constexpr float kShares[] = {0.75f, 0.0f, 0.625f, 0.5f, 1.0f};
  for (DType dtype : kTypes) {
    for (int64_t V : {2, 33, 127, 4097, 12289}) {
      for (double cap : {0.0, 5.0}) {
        SCOPED_TRACE(testing::Message() << V << " classes, cap " << cap);
        Chunk chunk(5, V, dtype);
        const Matrix logits = chunk.logits;
        SharedVector<int32_t> second, correct(5, -1);
        SharedVector<float> shares;
        for (int64_t i = 0; i < 5; ++i) {
          second.push_back(static_cast<int32_t>((chunk.labels[i] + 1 + 31 * i) % V));
          shares.push_back(kShares[i]);
        }
        second[2] = -1;
        second[3] = chunk.labels[3];
        const auto share_of = [&](int64_t i) {
          return second[i] < 0 || second[i] == chunk.labels[i] ? 1.0 : double{kShares[i]};
        };
        const auto x = [&](int64_t i, int64_t v) {
          return cap == 0.0 ? logits.At(i, v) : cap * std::tanh(logits.At(i, v) / cap);
        };
        CrossEntropyParams p = chunk.Params();
        p.second_labels = second.data();
        p.shares = shares.data();
        p.row_correct = correct.data();
        p.softcap = static_cast<float>(cap);
        p.label_smoothing = 0.125f;
        ASSERT_TRUE(RunLoss(p).ok());
        Reference lse;
        for (int64_t i = 0; i < 5; ++i) {
          double sum = 0.0;
          for (int64_t v = 0; v < V; ++v) sum += std::exp(x(i, v));
          lse.push_back(std::log(sum));
          const auto loss_of = [&](int64_t label) {
            return RegularisedLoss([&](int64_t v) { return x(i, v); }, V, label, 0.125, 0.0);
          };
          const double share = share_of(i), other = share == 1.0 ? 0.0 : loss_of(second[i]);
          const double loss =
              chunk.weights[i] * (share * loss_of(chunk.labels[i]) + (1.0 - share) * other);
          EXPECT_NEAR(chunk.loss[i], loss, 1e-6 * std::max(1.0, loss));
          bool likeliest = true;
          for (int64_t v = 0; v < V; ++v) likeliest &= x(i, v) <= x(i, chunk.labels[i]);
          EXPECT_EQ(correct[i], likeliest ? 1 : 0);
        }
        const auto gradient = [&](int64_t i, int64_t v) {
          const double share = share_of(i);
          double target = v == chunk.labels[i] ? share : 0.0;
          if (v == second[i] && share < 1.0) target += 1.0 - share;
          const double slope = cap == 0.0 ? 1.0 : 1.0 - std::pow(x(i, v) / cap, 2.0);
          return 0.125 * chunk.weights[i] * slope *
                 (std::exp(x(i, v) - lse[i]) - 0.875 * target - 0.125 / static_cast<double>(V));
        };
        ExpectClose(chunk.dlogits, Map(chunk.dlogits, gradient), 2.0);
        const std::vector<double> apart = Dense(chunk.dlogits);
        p.dlogits = chunk.logits.data();
        p.dlogits_stride = p.logits_stride;
        ASSERT_TRUE(RunLoss(p).ok());
        EXPECT_EQ(Dense(chunk.logits), apart);
      }
    }
  }
}

// MST-8: without a cap, with those of the page and a small one, beside the logits and in their
// place.
TEST(CrossEntropyTest, Mst8SmoothingAndZLossMatchReference) {
  for (DType dtype : kTypes) {
    for (int64_t V : {1, 2, 31, 33, 127, 507, 4097, 12288}) {
      for (double cap : {0.0, 5.0, 20.0, 30.0}) {
        SCOPED_TRACE(testing::Message() << V << " classes, cap " << cap);
        Chunk chunk(3, V, dtype);
        if (cap >= 20.0) chunk.logits.Fill(1, cap / 3.0);
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

// MST-8: a bias of the classes, added before the cap; its gradient is the sum of the rows'.
TEST(CrossEntropyTest, Mst8ClassBiasMatchesReference) {
  constexpr int64_t N = 5, V = 127;
  constexpr double kCap = 20.0;
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    Chunk chunk(N, V, dtype);
    Matrix bias(1, V, dtype), db(1, V);
    bias.Fill(2, 2.0);
    const BiasForwardParams add = {.b = bias.data(),
                                   .y = chunk.logits.data(),
                                   .N = N,
                                   .C = V,
                                   .y_stride = chunk.logits.stride(),
                                   .dtype = dtype};
    ASSERT_TRUE(BiasForward(add, TestStream()).ok());  // Rows of the bias,
    Matrix products(N, V, dtype), sums(N, V, dtype);
    products.Fill(1, 4.0);
    ASSERT_TRUE(AddRows({.a = chunk.logits.data(),
                         .b = products.data(),
                         .y = sums.data(),
                         .N = N,
                         .C = V,
                         .a_stride = chunk.logits.stride(),
                         .b_stride = products.stride(),
                         .y_stride = sums.stride(),
                         .a_dtype = dtype,
                         .b_dtype = dtype,
                         .y_dtype = dtype},
                        TestStream())
                    .ok());  // to which the head's product is added.
    CrossEntropyParams p = chunk.Params();
    p.logits = sums.data();
    p.logits_stride = sums.stride();
    p.softcap = kCap;
    p.label_smoothing = 0.125f;
    p.z_loss = 0.0625f;
    ASSERT_TRUE(RunLoss(p).ok());
    Bytes workspace(static_cast<size_t>(ColumnSumsWorkspace(N, V)));
    ASSERT_TRUE(BiasBackward({.dy = chunk.dlogits.data(),
                              .db = db.floats(),
                              .N = N,
                              .C = V,
                              .dy_stride = chunk.dlogits.stride(),
                              .dtype = dtype,
                              .workspace = workspace.data()},
                             TestStream())
                    .ok());
    const double unit = UnitOf(dtype);
    ExpectClose(sums,
                Map(sums, [&](int64_t i, int64_t v) { return products.At(i, v) + bias.At(0, v); }));
    std::vector<double> gradient(V, 0.0), magnitude(V, 0.0);
    for (int64_t i = 0; i < N; ++i) {
      const auto capped = [&](int64_t v) { return kCap * std::tanh(sums.At(i, v) / kCap); };
      const double loss = RegularisedLoss(capped, V, chunk.labels[i], 0.125, 0.0625);
      EXPECT_NEAR(chunk.loss[i], chunk.weights[i] * loss, 1e-6 * std::max(1.0, std::abs(loss)));
      double lse = 0.0;
      for (int64_t v = 0; v < V; ++v) lse += std::exp(capped(v));
      lse = std::log(lse);
      for (int64_t v = 0; v < V; ++v) {
        const double target = (v == chunk.labels[i] ? 0.875 : 0.0) + 0.125 / V;
        const double slope = 1.0 - std::pow(capped(v) / kCap, 2.0);
        const double d = 0.125 * chunk.weights[i] * slope *
                         (std::exp(capped(v) - lse) * (1.0 + 2.0 * 0.0625 * lse) - target);
        gradient[v] += d;
        magnitude[v] += std::abs(d);
      }
    }
    for (int64_t v = 0; v < V; ++v)
      EXPECT_NEAR(db.At(0, v), gradient[v], (1.01 * unit + 3e-6) * magnitude[v]) << v;
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

// The ignored label may be one of the classes, or above them all; it is no class then.
TEST(CrossEntropyTest, AnIgnoredLabelMayBeAnyNumber) {
  for (int32_t ignored : {0, 5, 30, 31, 1000, -1}) {
    SCOPED_TRACE(ignored);
    Chunk chunk(3, 31, DType::kF32);
    chunk.labels = {4, ignored, 6};
    CrossEntropyParams p = chunk.Params();
    p.ignore_label = ignored;
    p.z_loss = 0.1f;
    p.label_smoothing = 0.1f;
    ASSERT_TRUE(RunLoss(p).ok());
    EXPECT_EQ(chunk.loss[1], 0.0);
    for (int64_t v = 0; v < 31; ++v) EXPECT_EQ(chunk.dlogits.At(1, v), 0.0);
    EXPECT_GT(chunk.loss[0], 0.0);
    EXPECT_GT(chunk.loss[2], 0.0);
    EXPECT_NE(chunk.dlogits.At(2, 6), 0.0);
  }
}

}  // namespace
}  // namespace snug::kernels
