// What a worker measures of a GPU: starting runs, and copies each way. The rest is of its kind.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/worker/execute/gpu/test_gpu.h"
#include "worker/train/measure_rates.h"

namespace snug::train {
namespace {

using program::Limit;

TEST(GpuRatesTest, CopiesAndStartsAreMeasuredAndNothingElse) {
  const auto gpu = execute::OpenTestGpu();
  const auto rates = MeasureRates(*gpu);
  ASSERT_TRUE(rates.ok()) << rates.status();
  for (const program::Rates& of : {rates->f32, rates->bf16}) {
    for (size_t i = 0; i < program::kLimits; ++i) {
      const auto limit = static_cast<Limit>(i);
      const bool of_host =
          limit == Limit::kToHost || limit == Limit::kFromHost || limit == Limit::kRuns;
      EXPECT_TRUE(std::isfinite(of.per_second[i])) << program::kLimitNames[i];
      EXPECT_EQ(of.per_second[i] > 0.0, of_host) << program::kLimitNames[i];
    }
  }
  EXPECT_EQ(rates->f32, rates->bf16);
  EXPECT_EQ(gpu->allocator().usage().current_bytes, 0);
}

}  // namespace
}  // namespace snug::train
