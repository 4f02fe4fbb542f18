#include "worker/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace snug::train {
namespace {

using Shape = ScheduleOptions::Shape;

double Share(int64_t step, int64_t of) {
  return static_cast<double>(step) / static_cast<double>(std::max<int64_t>(1, of));
}

// Where a step stands. Arithmetic below is in transformers' order, so that the bits are the same.
struct Place {
  int64_t step;
  int64_t warmup;
  int64_t max_steps;
  // Share of the way from the end of warm-up to the end of the run.
  double progress() const { return Share(step - warmup, max_steps - warmup); }
};

double Wave(double cycles, double progress) {
  return 0.5 * (1.0 + std::cos(std::numbers::pi * cycles * 2.0 * progress));
}

double Linear(const Place& at) {
  return std::max(0.0, Share(at.max_steps - at.step, at.max_steps - at.warmup));
}

double Cosine(const Place& at, double cycles, double lowest) {
  return std::max(0.0, Wave(cycles, at.progress()) * (1.0 - lowest) + lowest);
}

double CosineWithRestarts(const Place& at, double cycles) {
  if (at.progress() >= 1.0) return 0.0;
  const double wave = std::fmod(cycles * at.progress(), 1.0);
  return std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * wave)));
}

double Polynomial(const Place& at, const TrainingOptions& options) {
  const double first = options.learning_rate, end = options.schedule_options.lr_end;
  if (at.step > at.max_steps) return end / first;
  const double remaining = 1.0 - static_cast<double>(at.step - at.warmup) /
                                     static_cast<double>(at.max_steps - at.warmup);
  return ((first - end) * std::pow(remaining, options.schedule_options.power) + end) / first;
}

// Falling from 1 to 0; rising is its mirror.
double Fall(Shape shape, double progress, double cycles) {
  switch (shape) {
    case Shape::kLinear:
      return 1.0 - progress;
    case Shape::kCosine:
      return Wave(cycles, progress);
    case Shape::kOneMinusSqrt:
      break;
  }
  return 1.0 - std::sqrt(progress);
}

double Rise(Shape shape, double progress) {
  switch (shape) {
    case Shape::kLinear:
      return progress;
    case Shape::kCosine:
      return 0.5 * (1.0 - std::cos(std::numbers::pi * progress));
    case Shape::kOneMinusSqrt:
      break;
  }
  return 1.0 - std::sqrt(1.0 - progress);
}

double WarmupStableDecay(const Place& at, const ScheduleOptions& options) {
  const double lowest = options.min_lr_ratio;
  const auto lifted = [&](double factor) {
    return std::max(0.0, factor * (1.0 - lowest) + lowest);
  };
  if (at.step < at.warmup) return lifted(Rise(options.warmup_type, Share(at.step, at.warmup)));
  const int64_t stable = options.num_stable_steps >= 0
                             ? options.num_stable_steps
                             : at.max_steps - at.warmup - options.num_decay_steps;
  const int64_t decaying = at.step - at.warmup - stable;
  if (decaying < 0) return 1.0;
  if (decaying >= options.num_decay_steps) return lowest;
  return lifted(
      Fall(options.decay_type, Share(decaying, options.num_decay_steps), options.num_cycles));
}

double Factor(const TrainingOptions& options, const Place& at) {
  const ScheduleOptions& own = options.schedule_options;
  if (options.schedule == Schedule::kConstant) return 1.0;
  if (options.schedule == Schedule::kWarmupStableDecay) return WarmupStableDecay(at, own);
  if (at.step < at.warmup) return Share(at.step, at.warmup);
  switch (options.schedule) {
    case Schedule::kLinear:
      return Linear(at);
    case Schedule::kCosine:
      return Cosine(at, own.num_cycles, 0.0);
    case Schedule::kCosineWithMinLr:
      return Cosine(at, own.num_cycles, own.min_lr_rate);
    case Schedule::kCosineWithRestarts:
      return CosineWithRestarts(at, own.num_cycles);
    case Schedule::kPolynomial:
      return Polynomial(at, options);
    case Schedule::kConstant:
    case Schedule::kConstantWithWarmup:
    case Schedule::kWarmupStableDecay:
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
  const Place at{step, WarmupSteps(options, max_steps), max_steps};
  return options.learning_rate * Factor(options, at);
}

}  // namespace snug::train
