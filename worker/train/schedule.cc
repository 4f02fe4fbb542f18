#include "worker/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace snug::train {
namespace {

// Share of the way from the end of warm-up to the end of the run.
double DecayProgress(int64_t step, int64_t warmup, int64_t max_steps) {
  return static_cast<double>(step - warmup) /
         static_cast<double>(std::max<int64_t>(1, max_steps - warmup));
}

double Factor(Schedule schedule, int64_t step, int64_t warmup, int64_t max_steps) {
  if (schedule == Schedule::kConstant) return 1.0;
  if (step < warmup) return static_cast<double>(step) / static_cast<double>(warmup);
  const double progress = DecayProgress(step, warmup, max_steps);
  switch (schedule) {
    case Schedule::kLinear:
      return std::max(0.0, 1.0 - progress);
    case Schedule::kCosine:
      return std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * progress)));
    case Schedule::kConstant:
    case Schedule::kConstantWithWarmup:
      break;
  }
  return 1.0;
}

}  // namespace

int64_t WarmupSteps(const TrainingOptions& options, int64_t max_steps) {
  if (options.warmup_steps > 0) return options.warmup_steps;
  return static_cast<int64_t>(std::ceil(static_cast<double>(max_steps) * options.warmup_ratio));
}

double LearningRate(const TrainingOptions& options, int64_t step, int64_t max_steps) {
  const int64_t warmup = WarmupSteps(options, max_steps);
  return options.learning_rate * Factor(options.schedule, step, warmup, max_steps);
}

}  // namespace snug::train
