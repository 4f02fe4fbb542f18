// NEFTune's noise on the embeddings, at the op: how large it is for each document, over seeds.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "tests/worker/execute/toy_run.h"
#include "worker/execute/op_run.h"

namespace snug::execute {
namespace {

constexpr int64_t kWidth = 16, kVocabulary = 3;
constexpr double kAlpha = 5.0;
constexpr std::array<int64_t, 3> kOffsets = {0, 4, 13};  // Documents of 4 and of 9 tokens.

// The output of the op on a table of zeros: the noise alone.
std::vector<float> Noise(uint64_t seed, double alpha) {
  const std::vector<int32_t> ids(static_cast<size_t>(kOffsets.back()), 1);
  std::vector<float> table(kVocabulary * kWidth, 0.0f);
  std::vector<float> x(static_cast<size_t>(kOffsets.back() * kWidth), -1.0f);
  const Batch batch = {
      .tokens = kOffsets.back(), .documents = 2, .ids = ids.data(), .offsets = kOffsets.data()};
  program::Op op;
  op.code = program::OpCode::kEmbedding;
  op.attributes.scale = 1.0;
  OpRun run;
  run.op = &op;
  run.batch = &batch;
  run.device = &TestDevice();
  run.out[0] = {x.data(), kOffsets.back(), kWidth};
  run.parameters[0].value = {table.data(), kVocabulary, kWidth};
  run.scalars = {.seed = seed, .step = 4, .neftune_alpha = alpha};
  OpFunctionsOfKernels()[static_cast<size_t>(op.code)].forward(run);
  return x;
}

// alpha / sqrt(T C) bounds it, T of the document; its mean is 0 and its variance a third of the
// bound's square, within five deviations.
TEST(EmbeddingNoiseTest, MeanAndVarianceOfEachDocumentOverSeeds) {
  constexpr int kSeeds = 400;
  for (size_t d = 0; d < 2; ++d) {
    const int64_t tokens = kOffsets[d + 1] - kOffsets[d];
    const double bound = kAlpha / std::sqrt(static_cast<double>(tokens * kWidth));
    double sum = 0.0, squares = 0.0, largest = 0.0;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const std::vector<float> x = Noise(seed, kAlpha);
      for (int64_t i = kOffsets[d] * kWidth; i < kOffsets[d + 1] * kWidth; ++i) {
        const double value = x[static_cast<size_t>(i)];
        sum += value;
        squares += value * value;
        largest = std::max(largest, std::abs(value));
      }
    }
    const auto n = static_cast<double>(kSeeds * tokens * kWidth);
    const double variance = bound * bound / 3.0;
    EXPECT_LE(largest, bound * (1.0 + 1e-6));
    EXPECT_GT(largest, 0.99 * bound);
    EXPECT_NEAR(sum / n, 0.0, 5.0 * std::sqrt(variance / n));
    EXPECT_NEAR(squares / n, variance, 5.0 * std::sqrt(4.0 / 45.0 * std::pow(bound, 4) / n));
  }
}

TEST(EmbeddingNoiseTest, NoneWithoutAlpha) {
  for (float value : Noise(1, 0.0)) EXPECT_EQ(value, 0.0f);
}

}  // namespace
}  // namespace snug::execute
