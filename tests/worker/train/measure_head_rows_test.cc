// How many rows of the head a worker finds to be fast: on an emulated GPU, whose times mean
// nothing.
#include "worker/train/measure_head_rows.h"

#include <gtest/gtest.h>

#include "tests/worker/execute/gpu/emulated_runtime.h"
#include "tests/worker/execute/gpu/test_gpu.h"
#include "worker/program/head_rows.h"

namespace snug::train {
namespace {

using execute::EmulatedRuntime;

// 2,048 rows, four times in each of five rounds: in 32, 16, 8 and 4 passes of two products. All
// that was taken is given back.
TEST(MeasureHeadRowsTest, EachChoiceGoesOverTheSameRows) {
  const auto gpu = execute::OpenTestGpu();
  const auto& runtime = dynamic_cast<EmulatedRuntime&>(gpu->runtime());
  const auto rows = MeasureHeadRows(*gpu, {.width = 2, .vocabulary = 3});
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_TRUE(program::IsHeadRowChoice(*rows)) << *rows;
  const int64_t tries = runtime.products() - 5 * (32 + 16 + 8 + 4) * 2;  // Whether it is fast.
  EXPECT_GE(tries, 2);
  EXPECT_LE(tries, 10);
  EXPECT_EQ(gpu->allocator().usage().current_bytes, 0);
}

// An emulation multiplies one number after another: a model's products would take it hours.
TEST(MeasureHeadRowsTest, ASlowGpuIsNotMeasured) {
  const auto gpu = execute::OpenTestGpu();
  const auto rows = MeasureHeadRows(*gpu);
  EXPECT_EQ(rows.status().code(), absl::StatusCode::kFailedPrecondition) << rows.status();
  EXPECT_EQ(gpu->allocator().usage().current_bytes, 0);
}

// The GPU's memory is full: nothing is chosen, and nothing is held.
TEST(MeasureHeadRowsTest, AGpuWithoutRoomIsNotMeasured) {
  const auto gpu = execute::OpenTestGpu();
  gpu->allocator().SetCap(10'000);
  const auto rows = MeasureHeadRows(*gpu, {.width = 2, .vocabulary = 3});
  EXPECT_EQ(rows.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(gpu->allocator().usage().current_bytes, 0);
}

}  // namespace
}  // namespace snug::train
