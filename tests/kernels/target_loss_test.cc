// Losses against targets: a reference in double from the definitions, finite differences, and what
// must hold however the call is made.
#include "kernels/target_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

constexpr int64_t kRows = 5;
constexpr TargetLossKind kKinds[] = {TargetLossKind::kSquare, TargetLossKind::kBinary};

Error RunLoss(const TargetLossParams& p) {
  const Error error = TargetLoss(p, TestStream());
  WaitForKernels();
  return error;
}

struct Chunk {
  Matrix logits, dlogits, targets;
  SharedVector<float> weights;
  SharedVector<double> loss, entropy;
  SharedVector<int32_t> correct;
  TargetLossKind kind;

  Chunk(int64_t N, int64_t V, DType dtype, TargetLossKind of_kind)
      : logits(N, V, dtype),
        dlogits(N, V, dtype),
        targets(N, V),
        loss(N, NAN),
        entropy(N, NAN),
        correct(N, -1),
        kind(of_kind) {
    logits.Fill(1, 3.0);
    for (int64_t i = 0; i < N; ++i) {
      for (int64_t v = 0; v < V; ++v)
        targets.Set(i, v, kind == TargetLossKind::kBinary ? (i + v) % 2 : 0.5 * (i - v % 7));
      weights.push_back(1.0f + 0.25f * static_cast<float>(i % 3));
    }
  }
  TargetLossParams Params() {
    return {.logits = logits.data(),
            .dlogits = dlogits.data(),
            .targets = targets.floats(),
            .weights = weights.data(),
            .row_loss = loss.data(),
            .row_entropy = entropy.data(),
            .row_correct = correct.data(),
            .N = logits.N(),
            .V = logits.C(),
            .logits_stride = logits.stride(),
            .dlogits_stride = dlogits.stride(),
            .targets_stride = targets.stride(),
            .dtype = logits.dtype(),
            .kind = kind,
            .scale = 0.125f};
  }
  // A row's loss, of other logits than its own.
  double LossOf(int64_t i, const std::function<double(int64_t v)>& x) const {
    double sum = 0.0;
    for (int64_t v = 0; v < logits.C(); ++v) {
      const double t = targets.At(i, v), p = 1.0 / (1.0 + std::exp(-x(v)));
      sum += kind == TargetLossKind::kSquare ? (x(v) - t) * (x(v) - t)
                                             : -t * std::log(p) - (1.0 - t) * std::log1p(-p);
    }
    return weights[i] * sum / static_cast<double>(logits.C());
  }
  double SlopeOf(int64_t i, int64_t v) const {
    const double x = logits.At(i, v), t = targets.At(i, v);
    const double slope =
        kind == TargetLossKind::kSquare ? 2.0 * (x - t) : 1.0 / (1.0 + std::exp(-x)) - t;
    return 0.125 * weights[i] * slope / static_cast<double>(logits.C());
  }
};

void ForKinds(const std::function<void(int64_t V, DType dtype, TargetLossKind kind)>& body) {
  for (TargetLossKind kind : kKinds) {
    for (DType dtype : kTypes) {
      for (int64_t V : {1, 2, 31, 33, 127, 4097}) {
        SCOPED_TRACE(testing::Message() << V << " classes, kind " << static_cast<int>(kind));
        body(V, dtype, kind);
      }
    }
  }
}

TEST(TargetLossTest, LossAndGradientMatchReference) {
  ForKinds([](int64_t V, DType dtype, TargetLossKind kind) {
    Chunk chunk(kRows, V, dtype, kind);
    ASSERT_TRUE(RunLoss(chunk.Params()).ok());
    for (int64_t i = 0; i < kRows; ++i) {
      const double loss = chunk.LossOf(i, [&](int64_t v) { return chunk.logits.At(i, v); });
      EXPECT_NEAR(chunk.loss[i], loss, 1e-12 * std::max(1.0, loss));
    }
    ExpectClose(chunk.dlogits,
                Map(chunk.dlogits, [&](int64_t i, int64_t v) { return chunk.SlopeOf(i, v); }));
    EXPECT_TRUE(chunk.dlogits.GapsUntouched());
  });
}

TEST(TargetLossTest, GradientMatchesFiniteDifferences) {
  for (TargetLossKind kind : kKinds) {
    Chunk chunk(2, 33, DType::kF32, kind);
    ASSERT_TRUE(RunLoss(chunk.Params()).ok());
    const auto loss = [&](const std::vector<double>& x) {
      double sum = 0.0;
      for (int64_t i = 0; i < 2; ++i)
        sum += chunk.LossOf(i, [&](int64_t v) { return x[static_cast<size_t>(i * 33 + v)]; });
      return 0.125 * sum;
    };
    const Reference expected = FiniteDifferences(Dense(chunk.logits), loss);
    EXPECT_LT(RelativeError(chunk.dlogits, expected), 1e-6);
  }
}

// The answers of a row are independent: their entropies add up, and all must be right.
TEST(TargetLossTest, EntropyAndWhatIsRightMatchReference) {
  ForKinds([](int64_t V, DType dtype, TargetLossKind kind) {
    Chunk chunk(kRows, V, dtype, kind);
    for (int64_t v = 0; v < V; ++v) chunk.logits.Set(3, v, chunk.targets.At(3, v) > 0.5 ? 2 : -2);
    ASSERT_TRUE(RunLoss(chunk.Params()).ok());
    const bool binary = kind == TargetLossKind::kBinary;
    for (int64_t i = 0; i < kRows; ++i) {
      double entropy = 0.0;
      bool right = binary;
      for (int64_t v = 0; v < V; ++v) {
        const double x = chunk.logits.At(i, v), p = 1.0 / (1.0 + std::exp(-x));
        entropy -= p * std::log(p) + (1.0 - p) * std::log1p(-p);
        right = right && (p > 0.5) == (chunk.targets.At(i, v) > 0.5);
      }
      EXPECT_NEAR(chunk.entropy[i], binary ? entropy : 0.0, 1e-12 * std::max(1.0, entropy));
      EXPECT_EQ(chunk.correct[i], right ? 1 : 0) << i;
    }
    EXPECT_EQ(chunk.correct[3], binary ? 1 : 0);
  });
}

// In the logits' place, and without a gradient, it gives the same.
TEST(TargetLossTest, VariantsAgree) {
  ForKinds([](int64_t V, DType dtype, TargetLossKind kind) {
    Chunk chunk(kRows, V, dtype, kind);
    ASSERT_TRUE(RunLoss(chunk.Params()).ok());
    const std::vector<double> apart = Dense(chunk.dlogits);
    const std::vector<double> loss(chunk.loss.begin(), chunk.loss.end());
    TargetLossParams p = chunk.Params();
    p.dlogits = nullptr;
    p.row_entropy = nullptr;
    p.row_correct = nullptr;
    chunk.loss.assign(kRows, NAN);
    ASSERT_TRUE(RunLoss(p).ok());
    EXPECT_EQ(std::vector<double>(chunk.loss.begin(), chunk.loss.end()), loss);
    p.dlogits = chunk.logits.data();
    p.dlogits_stride = p.logits_stride;
    ASSERT_TRUE(RunLoss(p).ok());
    EXPECT_EQ(Dense(chunk.logits), apart);
  });
}

TEST(TargetLossTest, LargeLogitsDoNotOverflow) {
  Chunk chunk(1, 4, DType::kF32, TargetLossKind::kBinary);
  const double logits[] = {1000.0, -1000.0, 1000.0, -1000.0};
  for (int64_t v = 0; v < 4; ++v) {
    chunk.logits.Set(0, v, logits[v]);
    chunk.targets.Set(0, v, v < 2 ? 1 : 0);
  }
  ASSERT_TRUE(RunLoss(chunk.Params()).ok());
  EXPECT_EQ(chunk.loss[0], 500.0);  // Two of four are wrong by 1000.
  EXPECT_EQ(chunk.entropy[0], 0.0);
  const double slope = 0.125 / 4.0;
  EXPECT_EQ(Dense(chunk.dlogits), (std::vector<double>{0.0, -slope, slope, 0.0}));
}

TEST(TargetLossTest, NothingHidesANonFiniteNumber) {
  for (TargetLossKind kind : kKinds) {
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      for (const double weight : {1.0, 0.0}) {
        Chunk of_logits(2, 33, DType::kBF16, kind), of_targets(2, 33, DType::kF32, kind);
        of_logits.logits.Set(1, 7, bad);
        of_targets.targets.Set(1, 7, bad);
        for (Chunk* chunk : {&of_logits, &of_targets}) {
          chunk->weights[1] = static_cast<float>(weight);
          ASSERT_TRUE(RunLoss(chunk->Params()).ok());
          EXPECT_TRUE(std::isfinite(chunk->loss[0]));
          EXPECT_FALSE(std::isfinite(chunk->loss[1])) << bad << " of weight " << weight;
        }
      }
    }
  }
}

TEST(TargetLossTest, SameBitsForAllThreadCountsAndDivisionsOfRows) {
  for (TargetLossKind kind : kKinds) {
    Chunk chunk(200, 127, DType::kBF16, kind);
    ExpectSameBitsEveryWay([&] {
      EXPECT_TRUE(RunLoss(chunk.Params()).ok());
      return chunk.dlogits.bytes();
    });
    const std::vector<double> whole(chunk.loss.begin(), chunk.loss.end());
    for (int64_t first = 0; first < 200; first += 7) {
      TargetLossParams p = chunk.Params();
      p.N = std::min<int64_t>(7, 200 - first);
      p.logits = chunk.logits.row(first);
      p.dlogits = chunk.dlogits.row(first);
      p.targets += first * p.targets_stride;
      p.weights += first;
      p.row_loss += first;
      p.row_entropy += first;
      p.row_correct += first;
      ASSERT_TRUE(RunLoss(p).ok());
    }
    EXPECT_EQ(std::vector<double>(chunk.loss.begin(), chunk.loss.end()), whole);
  }
}

}  // namespace
}  // namespace snug::kernels
