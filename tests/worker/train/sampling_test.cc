#include "worker/train/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace snug::train {
namespace {

int32_t Pick(std::vector<float> logits, const SampleOptions& options, double uniform = 0.0) {
  std::vector<int32_t> order(logits.size());
  return PickToken(logits, order, options, uniform);
}

// How often each token comes out of evenly spread draws.
std::vector<double> Shares(const std::vector<float>& logits, const SampleOptions& options) {
  constexpr int kDraws = 20000;
  std::vector<double> shares(logits.size());
  for (int i = 0; i < kDraws; ++i)
    shares[static_cast<size_t>(Pick(logits, options, (i + 0.5) / kDraws))] += 1.0 / kDraws;
  return shares;
}

std::vector<double> Softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> p;
  double sum = 0.0;
  for (float x : logits) p.push_back(std::exp(x / temperature));
  for (double w : p) sum += w;
  for (double& w : p) w /= sum;
  return p;
}

const std::vector<float> kLogits = {0.5f, 2.0f, -1.0f, 1.5f, 0.0f, -3.0f};

TEST(SamplingTest, TemperatureZeroTakesTheLikeliestAndTheFirstOfEquals) {
  EXPECT_EQ(Pick({1.0f, 3.0f, 2.0f}, {.temperature = 0.0}, 0.99), 1);
  EXPECT_EQ(Pick({3.0f, 1.0f, 3.0f}, {.temperature = 0.0}, 0.99), 0);
}

TEST(SamplingTest, DrawsFollowTheSoftmaxAtTheTemperature) {
  for (double temperature : {0.5, 1.0, 2.0}) {
    const std::vector<double> expected = Softmax(kLogits, temperature);
    const std::vector<double> shares = Shares(kLogits, {.temperature = temperature});
    for (size_t i = 0; i < kLogits.size(); ++i) EXPECT_NEAR(shares[i], expected[i], 1e-3) << i;
  }
}

// As transformers' TopPLogitsWarper: from the least likely on, tokens go as long as those that went
// have at most 1 - top_p together; the rest are scaled up.
TEST(SamplingTest, TopPLeavesOutTheTail) {
  const std::vector<double> p = Softmax(kLogits, 1.0);
  for (double top_p : {0.05, 0.5, 0.8, 0.9, 0.999}) {
    std::vector<size_t> ascending = {5, 2, 4, 0, 3, 1};
    std::vector<bool> gone(p.size());
    double tail = 0.0, left = 1.0;
    for (size_t i = 0; i + 1 < ascending.size(); ++i) {
      tail += p[ascending[i]];
      if (tail > 1.0 - top_p) break;
      gone[ascending[i]] = true;
      left -= p[ascending[i]];
    }
    const std::vector<double> shares = Shares(kLogits, {.temperature = 1.0, .top_p = top_p});
    for (size_t i = 0; i < p.size(); ++i)
      EXPECT_NEAR(shares[i], gone[i] ? 0.0 : p[i] / left, 1e-3) << i << " at " << top_p;
  }
}

TEST(SamplingTest, WhatIsNotANumberIsNoToken) {
  EXPECT_EQ(Pick({1.0f, std::nanf("")}, {.temperature = 0.0}), -1);
  EXPECT_EQ(Pick({1.0f, std::nanf("")}, {.temperature = 1.0}, 0.5), -1);
}

// Draws are even, and others for another seed, step, prompt and token.
TEST(SamplingTest, UniformsAreEvenAndDifferent) {
  double sum = 0.0, squares = 0.0;
  for (int64_t i = 0; i < 20000; ++i) {
    const double u = SampleUniform(42, i / 100, i % 10, i / 10 % 10);
    ASSERT_TRUE(u >= 0.0 && u < 1.0);
    sum += u;
    squares += u * u;
  }
  EXPECT_NEAR(sum / 20000, 0.5, 0.011);  // Five deviations.
  EXPECT_NEAR(squares / 20000, 1.0 / 3.0, 0.011);
  const double one = SampleUniform(1, 2, 3, 4);
  EXPECT_EQ(one, SampleUniform(1, 2, 3, 4));
  for (double other : {SampleUniform(2, 2, 3, 4), SampleUniform(1, 3, 3, 4),
                       SampleUniform(1, 2, 4, 4), SampleUniform(1, 2, 3, 5)})
    EXPECT_NE(one, other);
}

}  // namespace
}  // namespace snug::train
