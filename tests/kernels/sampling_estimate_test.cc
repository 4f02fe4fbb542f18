// What estimates of a weight gradient from sampled rows are worth: that their mean is the gradient
// and their variance the closed form, and that wrong estimators are told from right ones. On the
// CPU alone: devices select the same rows (sampling_test.cc).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "tests/kernels/kernel_testing.h"
#include "tests/kernels/sampling_testing.h"

namespace snug::kernels {
namespace {

constexpr int64_t kRows = 2048, kIn = 24, kOut = 16, kTrials = 4000;
using Gradient = std::vector<double>;  // (out, in)

double Squared(const Gradient& g) { return std::inner_product(g.begin(), g.end(), g.begin(), 0.0); }

// A linear's input h and the gradient g of its output, with norms of a lognormal law, and a common
// direction, so that the weight gradient is no noise itself.
struct Linear {
  std::vector<double> h, g, h_norms, g_norms;
  Gradient exact;

  Linear(double sigma, uint32_t seed) : h(kRows * kIn), g(kRows * kOut) {
    std::mt19937 engine(seed);
    std::normal_distribution<double> normal;
    const auto fill = [&](std::vector<double>& x, int64_t width, std::vector<double>& norms) {
      for (int64_t t = 0; t < kRows; ++t) {
        const double norm = std::exp(sigma / std::sqrt(2.0) * normal(engine));
        double squares = 0.0;
        for (int64_t c = 0; c < width; ++c) {
          x[t * width + c] = normal(engine) + 0.7;
          squares += x[t * width + c] * x[t * width + c];
        }
        for (int64_t c = 0; c < width; ++c) x[t * width + c] *= norm / std::sqrt(squares);
        norms.push_back(norm);
      }
    };
    fill(h, kIn, h_norms);
    fill(g, kOut, g_norms);
    Finish();
  }
  void Finish() {
    exact.assign(kOut * kIn, 0.0);
    for (int64_t t = 0; t < kRows; ++t) Add(t, 1.0, exact);
  }
  void Add(int64_t t, double weight, Gradient& dW) const {
    for (int64_t o = 0; o < kOut; ++o) {
      const double scaled = weight * g[t * kOut + o];
      for (int64_t i = 0; i < kIn; ++i) dW[o * kIn + i] += scaled * h[t * kIn + i];
    }
  }
  Pool Scores(SamplingKind kind) const {
    return {.norms = SharedVector<float>(h_norms.begin(), h_norms.end()),
            .surrogate = SharedVector<float>(g_norms.begin(), g_norms.end()),
            .mask = {},
            .kind = kind};
  }
};

// Of many estimates, relative to the exact gradient.
struct Outcome {
  double bias;      // ||mean - dW|| / ||dW||
  double variance;  // E ||estimate - dW||^2 / ||dW||^2
  double largest_z;
};

using Estimator = std::function<void(uint32_t trial, Gradient& dW)>;

Outcome Try(const Linear& linear, const Estimator& estimate, int64_t trials = kTrials) {
  Gradient sum(kOut * kIn, 0.0), squares(kOut * kIn, 0.0), dW;
  for (int64_t trial = 0; trial < trials; ++trial) {
    dW.assign(kOut * kIn, 0.0);
    estimate(static_cast<uint32_t>(trial), dW);
    for (size_t j = 0; j < dW.size(); ++j) {
      const double off = dW[j] - linear.exact[j];
      sum[j] += off;
      squares[j] += off * off;
    }
  }
  const double norm = Squared(linear.exact), n = static_cast<double>(trials);
  double largest = 0.0;
  for (size_t j = 0; j < sum.size(); ++j) {
    largest = std::max(largest, std::abs(sum[j]) / std::sqrt(squares[j] + 1e-300));
  }
  return {std::sqrt(Squared(sum) / norm) / n,
          std::accumulate(squares.begin(), squares.end(), 0.0) / norm / n, largest};
}

// The kernel's selection, as the estimator it is for.
Estimator Sampled(const Linear& linear, const Pool& pool, int64_t k) {
  return [&linear, pool, k](uint32_t trial, Gradient& dW) {
    const Selected out = Sample(pool, k, trial, nullptr);
    for (int64_t i = 0; i < k; ++i) {
      linear.Add(out.index[i], static_cast<double>(out.weights[i]), dW);
    }
  };
}

// ---- closed forms (the paper's, for any scores) -------------------------------------------------

struct ClosedForm {
  int64_t certain;
  double crs, wta;  // Relative variances.
};

ClosedForm VarianceOf(const Linear& linear, const std::vector<double>& scores, int64_t k) {
  std::vector<int64_t> order(kRows);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return scores[a] > scores[b]; });
  const auto of = [&](int64_t certain) {  // The rest sampled, with replacement.
    Gradient rest(kOut * kIn, 0.0);
    double mass = 0.0, second = 0.0;
    for (int64_t c = certain; c < kRows; ++c) {
      linear.Add(order[c], 1.0, rest);
      mass += scores[order[c]];
    }
    for (int64_t c = certain; c < kRows; ++c) {
      const double product = linear.h_norms[order[c]] * linear.g_norms[order[c]];
      second += product * product * mass / scores[order[c]];
    }
    return (second - Squared(rest)) / static_cast<double>(k - certain) / Squared(linear.exact);
  };
  double rest = std::accumulate(scores.begin(), scores.end(), 0.0);
  int64_t certain = 0;
  while (scores[order[certain]] * static_cast<double>(k - certain) > rest) {
    rest -= scores[order[certain++]];
  }
  return {certain, of(0), of(certain)};
}

std::vector<double> ScoresOf(const Pool& pool) {
  std::vector<double> scores;
  for (int64_t t = 0; t < pool.T(); ++t) {
    scores.push_back(static_cast<double>(pool.norms[t]) *
                     (pool.surrogate.empty() ? 1.0 : static_cast<double>(pool.surrogate[t])));
  }
  return scores;
}

// WTA-5's criterion.
void ExpectUnbiased(const Outcome& outcome, double variance) {
  EXPECT_LE(outcome.bias, 1.25 * std::sqrt(variance / static_cast<double>(kTrials)));
  EXPECT_LE(outcome.largest_z, 4.5);
}

// ---- tests --------------------------------------------------------------------------------------

// WTA-5, WTA-6: the mean is the gradient, the variance the closed form; the systematic sample's is
// lower (WTA-7). Plain sampling, by the test, holds the closed form that WTA-7 compares with.
TEST(SamplingEstimateTest, Wta5Wta6MeanAndVariance) {
  const Linear linear(1.0, 1);
  const int64_t k = SampleBudget(kRows, 0.3);
  const Pool pool = linear.Scores(SamplingKind::kWinnerTakeAll);
  const std::vector<double> scores = ScoresOf(pool);
  const ClosedForm closed = VarianceOf(linear, scores, k);
  ASSERT_EQ(Sample(pool, k, 0, nullptr).certain[0], closed.certain);

  const Outcome wta = Try(linear, Sampled(linear, pool, k));
  ExpectUnbiased(wta, closed.wta);
  EXPECT_NEAR(wta.variance / closed.wta, 1.0, 0.05);

  const Outcome pps = Try(linear, Sampled(linear, linear.Scores(SamplingKind::kSystematic), k));
  ExpectUnbiased(pps, closed.wta);
  EXPECT_LE(pps.variance, 1.02 * closed.wta);

  std::discrete_distribution<int64_t> draw(scores.begin(), scores.end());
  const double all = std::accumulate(scores.begin(), scores.end(), 0.0);
  std::mt19937 engine(2);
  const Outcome crs = Try(linear, [&](uint32_t, Gradient& dW) {
    for (int64_t i = 0; i < k; ++i) {
      const int64_t t = draw(engine);
      linear.Add(t, all / static_cast<double>(k) / scores[t], dW);
    }
  });
  EXPECT_NEAR(crs.variance / closed.crs, 1.0, 0.05);
  RecordProperty("pps_to_wta", std::to_string(pps.variance / wta.variance));
  RecordProperty("wta_to_crs", std::to_string(wta.variance / crs.variance));
}

// WTA-7: Var(WTA) <= Var(CRS), equal if and only if C is empty; Var(PPS) <= 1.02 Var(WTA). The
// kernel's own samples are measured; what they are held against is the closed form of plain
// sampling.
TEST(SamplingEstimateTest, Wta7VariancesAreOrdered) {
  constexpr int kMeasured = 400;
  constexpr double kError = 0.03;  // Of a variance from so many gradients.
  for (double sigma : {0.0, 0.5, 1.0, 1.5, 2.0}) {
    for (double share : {0.1, 0.3}) {
      SCOPED_TRACE(testing::Message() << "sigma " << sigma << ", share " << share);
      const Linear linear(sigma, 3);
      const int64_t k = SampleBudget(kRows, share);
      const Pool pool = linear.Scores(SamplingKind::kSystematic);
      const Pool winners = linear.Scores(SamplingKind::kWinnerTakeAll);
      const ClosedForm closed = VarianceOf(linear, ScoresOf(pool), k);
      const int64_t certain = Sample(winners, k, 0, nullptr).certain[0];
      EXPECT_EQ(certain, closed.certain);
      const Outcome wta = Try(linear, Sampled(linear, winners, k), kMeasured);
      if (certain == 0) {
        EXPECT_NEAR(wta.variance / closed.crs, 1.0, kError);
      } else {
        EXPECT_LT(wta.variance, closed.crs * (1.0 + kError));
        // Strictly below wherever the difference is more than the measurement's error.
        if (closed.wta < (1.0 - 2.0 * kError) * closed.crs) {
          EXPECT_LT(wta.variance, (1.0 - kError) * closed.crs);
        }
      }
      const Outcome pps = Try(linear, Sampled(linear, pool, k), kMeasured);
      EXPECT_LE(pps.variance, 1.02 * wta.variance * (1.0 + kError));
      EXPECT_LE(pps.variance, 1.02 * closed.wta);
      std::printf("sigma %.1f share %.1f: |C|/k %.2f  CRS %.4f  WTA %.4f (%.4f)  PPS %.4f\n", sigma,
                  share, static_cast<double>(closed.certain) / static_cast<double>(k), closed.crs,
                  closed.wta, wta.variance, pps.variance);
    }
  }
}

// WTA-8: with a surrogate that is out of date the estimate has a greater variance and no bias.
TEST(SamplingEstimateTest, Wta8StaleSurrogateIsUnbiased) {
  const Linear linear(1.0, 4);
  const int64_t k = SampleBudget(kRows, 0.3);
  for (SamplingKind kind : {SamplingKind::kSystematic, SamplingKind::kWinnerTakeAll}) {
    Pool pool = linear.Scores(kind);
    const SharedVector<float> noise = LogNormal(kRows, 1.0, 5);
    for (int64_t t = 0; t < kRows; ++t) pool.surrogate[t] *= noise[t];
    const ClosedForm closed = VarianceOf(linear, ScoresOf(pool), k);
    const Outcome outcome = Try(linear, Sampled(linear, pool, k));
    ExpectUnbiased(outcome, closed.wta);
    if (kind == SamplingKind::kWinnerTakeAll) {
      EXPECT_NEAR(outcome.variance / closed.wta, 1.0, 0.05);
    }
  }
}

// WTA-8: rows whose surrogate is 0 though their gradient is not: the floor keeps the estimate
// unbiased; without it they are lost, and the bias is what they held.
TEST(SamplingEstimateTest, Wta8FloorKeepsStaleZerosUnbiased) {
  const Linear linear(0.5, 6);
  const int64_t k = SampleBudget(kRows, 0.3);
  Pool pool = linear.Scores(SamplingKind::kSystematic);
  for (int64_t t = 0; t < kRows; t += 7) pool.surrogate[t] = 0.0f;
  pool.floor = 0.05f;
  std::vector<double> scores = ScoresOf(pool);
  const double mean = std::accumulate(scores.begin(), scores.end(), 0.0) / kRows;
  for (double& score : scores) score = std::max(score, static_cast<double>(pool.floor) * mean);
  const double variance = VarianceOf(linear, scores, k).wta;
  ExpectUnbiased(Try(linear, Sampled(linear, pool, k)), variance);
  pool.floor = 0.0f;
  EXPECT_GT(Try(linear, Sampled(linear, pool, k), 400).bias, 0.1);
}

// WTA-9: nothing is known of the gradients yet: scores are the norms alone, fully scaled.
TEST(SamplingEstimateTest, Wta9ColdStartIsUnbiased) {
  const Linear linear(1.0, 7);
  const int64_t k = SampleBudget(kRows, 0.3);
  for (SamplingKind kind : {SamplingKind::kSystematic, SamplingKind::kWinnerTakeAll}) {
    Pool pool = linear.Scores(kind);
    pool.surrogate.assign(kRows, 0.0f);
    const ClosedForm closed = VarianceOf(linear, linear.h_norms, k);
    ExpectUnbiased(Try(linear, Sampled(linear, pool, k)), closed.wta);
  }
}

// WTA-12, WTA-9's defect, NEG-6: unscaled rows are biased, and far beyond what WTA-5 lets pass: the
// largest k rows; sampled rows without their weights; weights of S_R / S, as the published code
// has them at a cold start.
TEST(SamplingEstimateTest, Wta12Neg6WrongEstimatorsFail) {
  const Linear linear(1.0, 8);
  const int64_t k = SampleBudget(kRows, 0.3);
  const Pool pool = linear.Scores(SamplingKind::kWinnerTakeAll);
  const std::vector<double> scores = ScoresOf(pool);
  const ClosedForm closed = VarianceOf(linear, scores, k);
  const double limit = 1.25 * std::sqrt(closed.wta / static_cast<double>(kTrials));

  std::vector<int64_t> order(kRows);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return scores[a] > scores[b]; });
  const Estimator largest = [&](uint32_t, Gradient& dW) {
    for (int64_t i = 0; i < k; ++i) linear.Add(order[i], 1.0, dW);
  };
  EXPECT_GT(Try(linear, largest, 10).bias, 10 * limit);

  const auto weighted = [&](const std::function<double(float)>& weight) -> Estimator {
    return [&linear, &pool, k, weight](uint32_t trial, Gradient& dW) {
      const Selected out = Sample(pool, k, trial, nullptr);
      for (int64_t i = 0; i < k; ++i) linear.Add(out.index[i], weight(out.weights[i]), dW);
    };
  };
  EXPECT_GT(Try(linear, weighted([](float) { return 1.0; }), 400).bias, 10 * limit);
  const double all = std::accumulate(scores.begin(), scores.end(), 0.0);
  double certain = 0.0;
  for (int64_t c = 0; c < closed.certain; ++c) certain += scores[order[c]];
  const double published = 1.0 - certain / all;
  EXPECT_GT(Try(linear, weighted([&](float w) { return w == 1.0f ? 1.0 : published; }), 400).bias,
            10 * limit);
}

// In sequence order the closed form bounds the systematic sample's variance where rows may be
// exchanged. Gradients that repeat with the sampling step are its worst case: each sample sees one
// of four rows of a period. Unbiased all the same; the variance is reported.
TEST(SamplingEstimateTest, PeriodicRowsAreUnbiasedAtAHighVariance) {
  Linear linear(0.0, 9);
  for (int64_t t = 0; t < kRows; ++t) {
    for (int64_t o = 0; o < kOut; ++o) linear.g[t * kOut + o] = linear.g[t % 4 * kOut + o];
  }
  linear.Finish();
  const int64_t k = kRows / 4;
  const Pool pool = linear.Scores(SamplingKind::kSystematic);
  const double wta = VarianceOf(linear, ScoresOf(pool), k).wta;
  const Outcome outcome = Try(linear, Sampled(linear, pool, k));
  ExpectUnbiased(outcome, outcome.variance);
  EXPECT_GT(outcome.variance, wta);  // The bound does not hold here.
  std::printf("periodic rows: systematic %.4f, winner takes all %.4f: %.1f times the variance\n",
              outcome.variance, wta, outcome.variance / wta);
}

// Of exact inclusion: a row is selected with probability s_t / tau.
TEST(SamplingEstimateTest, InclusionProbabilitiesAreProportional) {
  Pool pool = {.norms = LogNormal(300, 1.0, 10), .surrogate = {}, .mask = {}};
  constexpr int64_t kBudget = 60;
  std::vector<double> expected(300, 0.0), taken(300, 0.0);
  for (int64_t trial = 0; trial < kTrials; ++trial) {
    const Selected out = Sample(pool, kBudget, static_cast<uint32_t>(trial), nullptr);
    for (int64_t i = 0; i < kBudget; ++i) {
      taken[out.index[i]] += 1.0;
      expected[out.index[i]] = 1.0 / static_cast<double>(out.weights[i]);
    }
  }
  double sum = 0.0;
  for (int64_t t = 0; t < 300; ++t) {
    if (taken[t] == 0.0) continue;
    const double n = static_cast<double>(kTrials), p = expected[t];
    EXPECT_LE(std::abs(taken[t] - n * p), 5.0 * std::sqrt(n * p * (1.0 - p)) + 1e-6) << t;
    sum += p;
  }
  EXPECT_NEAR(sum, 60.0, 0.05);  // A row that never came up would be missing.
}

}  // namespace
}  // namespace snug::kernels
