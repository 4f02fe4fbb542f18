#include "worker/train/best.h"

#include <gtest/gtest.h>

namespace snug::train {
namespace {

// Whether each evaluation in turn was the best so far, and how long it has been waited.
struct Seen {
  std::string best;    // "1" for a new best, "0" else.
  std::string waited;  // The count behind each.
  BestState state;
};

Seen See(const BestOptions& options, const std::vector<std::optional<double>>& metrics) {
  Seen seen;
  for (size_t i = 0; i < metrics.size(); ++i) {
    const auto step = static_cast<int64_t>(10 * (i + 1));
    seen.best += Observe(options, step, metrics[i], seen.state) ? "1" : "0";
    seen.waited += std::to_string(seen.state.waited);
  }
  return seen;
}

TEST(BestTest, SmallerIsBetterForALoss) {
  const Seen seen = See({.patience = 2}, {3.0, 2.0, 2.0, 2.5, 1.0, 1.5});
  EXPECT_EQ(seen.best, "110010");
  EXPECT_EQ(seen.waited, "001201");
  EXPECT_EQ(seen.state.step, 50);
  EXPECT_EQ(seen.state.metric, 1.0);
}

TEST(BestTest, GreaterIsBetterForAnAccuracy) {
  const Seen seen = See({.greater_is_better = true}, {0.1, 0.3, 0.2, 0.4});
  EXPECT_EQ(seen.best, "1101");
  EXPECT_EQ(seen.state.step, 40);
}

// A step of less than the threshold is a new best, but not one to go on waiting for: as in
// transformers, whose callback compares with the best of before.
TEST(BestTest, TheThresholdIsForTheWaitingAlone) {
  const Seen seen = See({.patience = 2, .threshold = 0.5}, {3.0, 2.9, 2.8, 2.0});
  EXPECT_EQ(seen.best, "1111");
  EXPECT_EQ(seen.waited, "0120");
}

// A correlation of predictions that are all the same: neither the first best nor a better one.
TEST(BestTest, AnUndefinedMetricIsWaitedThrough) {
  const Seen seen = See({.greater_is_better = true}, {std::nullopt, -0.5, std::nullopt, 0.5});
  EXPECT_EQ(seen.best, "0101");
  EXPECT_EQ(seen.waited, "1010");
  EXPECT_EQ(seen.state.metric, 0.5);
}

TEST(BestTest, PatienceEndsAfterSoManyEvaluationsWithoutABetterOne) {
  BestState state;
  const BestOptions options{.patience = 2};
  for (double metric : {1.0, 2.0}) Observe(options, 1, metric, state);
  EXPECT_FALSE(PatienceIsOver(options, state));
  Observe(options, 2, 3.0, state);
  EXPECT_TRUE(PatienceIsOver(options, state));
  EXPECT_FALSE(PatienceIsOver({.patience = 0}, state));
}

}  // namespace
}  // namespace snug::train
