// The rates that a node measures of a CPU. How true a step's time is that they predict, the bench
// says: tests/bench/predicted_steps.py.
#include "worker/train/measure_rates.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/worker/execute/toy_run.h"

namespace snug::train {
namespace {

using program::Limit;

TEST(MeasureRatesTest, RatesOfACpuAreFiniteAndAboveZero) {
  const auto rates = MeasureRates(execute::TestDevice());
  ASSERT_TRUE(rates.ok()) << rates.status();
  for (const program::Rates& of : {rates->f32, rates->bf16}) {
    for (size_t i = 0; i < program::kLimits; ++i) {
      EXPECT_TRUE(std::isfinite(of.per_second[i])) << program::kLimitNames[i];
      EXPECT_GT(of.per_second[i], 0.0) << program::kLimitNames[i];
    }
  }
  for (const Limit limit : {Limit::kPasses, Limit::kToHost, Limit::kFromHost, Limit::kRuns})
    EXPECT_EQ(rates->f32[limit], rates->bf16[limit]);
}

}  // namespace
}  // namespace snug::train
