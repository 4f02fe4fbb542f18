#include "worker/train/schedule.h"

#include "gtest/gtest.h"

namespace snug::train {
namespace {

TrainingOptions Options(Schedule schedule, int64_t warmup) {
  TrainingOptions options;
  options.learning_rate = 2.0;
  options.schedule = schedule;
  options.warmup_steps = warmup;
  return options;
}

// Literal values from transformers 5.23 get_scheduler with 10 steps, 2 of them warm-up, times 2.0.
TEST(ScheduleTest, LinearEqualsTransformers) {
  const TrainingOptions options = Options(Schedule::kLinear, 2);
  const double expected[] = {0.0, 1.0, 2.0, 1.75, 1.5, 1.25, 1.0, 0.75, 0.5, 0.25};
  for (int64_t step = 0; step < 10; ++step)
    EXPECT_DOUBLE_EQ(LearningRate(options, step, 10), expected[step]) << step;
}

TEST(ScheduleTest, CosineEqualsTransformers) {
  const TrainingOptions options = Options(Schedule::kCosine, 2);
  const double expected[] = {0.0,
                             1.0,
                             2.0,
                             1.9238795325112867,
                             1.7071067811865475,
                             1.3826834323650898,
                             1.0,
                             0.6173165676349102,
                             0.2928932188134524,
                             0.07612046748871326};
  for (int64_t step = 0; step < 10; ++step)
    EXPECT_DOUBLE_EQ(LearningRate(options, step, 10), expected[step]) << step;
}

TEST(ScheduleTest, ConstantIgnoresWarmupAndConstantWithWarmupDoesNot) {
  EXPECT_EQ(LearningRate(Options(Schedule::kConstant, 4), 0, 10), 2.0);
  EXPECT_EQ(LearningRate(Options(Schedule::kConstantWithWarmup, 4), 1, 10), 0.5);
  EXPECT_EQ(LearningRate(Options(Schedule::kConstantWithWarmup, 4), 9, 10), 2.0);
}

TEST(ScheduleTest, WarmupRatioIsRoundedUp) {
  TrainingOptions options = Options(Schedule::kLinear, 0);
  options.warmup_ratio = 0.03;
  EXPECT_EQ(WarmupSteps(options, 100), 3);
  EXPECT_EQ(WarmupSteps(options, 101), 4);
}

}  // namespace
}  // namespace snug::train
