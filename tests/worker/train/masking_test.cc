// Masks of tokens: the shares that are asked for, the same for a row in whatever batch it comes.
#include "worker/train/masking.h"

#include <cmath>
#include <map>

#include "gtest/gtest.h"
#include "worker/train/batches.h"

namespace snug::train {
namespace {

constexpr MaskTokens kTokens = {.mask = 4, .vocabulary = 50};
constexpr int32_t kId = 60;  // Beyond what replaces a token, so that it is told from that.
constexpr int64_t kRows = 400, kLength = 500;

struct Counts {
  double chosen = 0, hidden = 0, kept = 0;
  std::map<int32_t, double> replaced;
};

Counts Count(const Masking& masking) {
  Counts counts;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t t = 0; t < kLength; ++t) {
      const MaskedToken found = MaskOf(masking, kTokens, row, t, kId);
      if (!found.chosen) continue;
      ++counts.chosen;
      if (found.read == kId) ++counts.kept;
      // Among those that replace is the mask itself, too.
      else if (found.read == kTokens.mask)
        ++counts.hidden;
      else
        ++counts.replaced[found.read];
    }
  }
  return counts;
}

// Of n draws with probability p each, within 5 standard deviations.
void ExpectShare(double count, double n, double p) {
  EXPECT_NEAR(count, n * p, 5.0 * std::sqrt(n * p * (1.0 - p))) << n << " times " << p;
}

TEST(MaskingTest, SharesAreThoseOfTransformers) {
  for (const double probability : {0.15, 0.4}) {
    const Counts counts = Count({.probability = probability, .seed = 3, .epoch = 2});
    ExpectShare(counts.chosen, kRows * kLength, probability);
    ExpectShare(counts.hidden, counts.chosen, 0.8 + 0.1 / 50);
    ExpectShare(counts.kept, counts.chosen, 0.1);
    EXPECT_EQ(counts.replaced.size(), 49u);
    for (const auto& [id, count] : counts.replaced) {
      EXPECT_LT(id, 50);
      ExpectShare(count, counts.chosen, 0.1 / 50);
    }
  }
}

// Of two draws that have nothing to do with each other a share of p^2 is chosen by both.
TEST(MaskingTest, EpochsSeedsAndRowsAreDrawnApart) {
  const Masking masking = {.probability = 0.15, .seed = 3, .epoch = 2};
  const auto shared = [&](const Masking& other, int64_t rows_on) {
    double both = 0;
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t t = 0; t < kLength; ++t) {
        both += MaskOf(masking, kTokens, row, t, kId).chosen &&
                        MaskOf(other, kTokens, row + rows_on, t, kId).chosen
                    ? 1
                    : 0;
      }
    }
    return both;
  };
  Masking other = masking;
  ExpectShare(shared(masking, 1), kRows * kLength, 0.15 * 0.15);
  other.epoch = 3;
  ExpectShare(shared(other, 0), kRows * kLength, 0.15 * 0.15);
  other.epoch = kEvaluationEpoch;
  ExpectShare(shared(other, 0), kRows * kLength, 0.15 * 0.15);
  other = masking;
  other.seed = 4;
  ExpectShare(shared(other, 0), kRows * kLength, 0.15 * 0.15);
  EXPECT_EQ(shared(masking, 0), Count(masking).chosen);
}

}  // namespace
}  // namespace snug::train
