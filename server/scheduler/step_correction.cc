#include "server/scheduler/step_correction.h"

#include <algorithm>
#include <utility>

namespace snug::server {
namespace {

constexpr int64_t kWarmUpSteps = 2;
// What is further off, either way, is a clock that was set or a worker that lies. Steps of the
// smallest models take some hundred times what their arithmetic does.
constexpr double kMostRatio = 1e6;

}  // namespace

std::optional<double> StepCorrection::OnStep(int64_t began_at, v1::Job& job) {
  const v1::Progress& now = job.progress();
  // Told again, by a worker that has dialled again.
  if (now.global_step() <= last_step_) return std::nullopt;
  last_step_ = now.global_step();
  const double predicted = job.plan().step_seconds();
  const double before = std::exchange(predicted_s_, predicted);
  const bool other_plan = before > 0.0 && before != predicted;
  if (other_plan) ratios_ = {};
  // With an order under way nobody knows which plan the step was made under.
  if (other_plan || job.plan_changes().has_pending()) return std::nullopt;
  if (now.global_step() <= began_at + kWarmUpSteps || !(predicted > 0.0)) return std::nullopt;
  const double ratio = now.step_seconds() / predicted;
  if (!(ratio >= 1.0 / kMostRatio && ratio <= kMostRatio)) return std::nullopt;  // Nor is NaN.
  // What was seen under the plan before, or in an earlier life of the daemon, counts as one step.
  if (const double known = StepRatioOf(job); ratios_.empty() && known > 0.0) ratios_.Add(known);
  ratios_.Add(ratio);
  SetStepTime(ratios_.Get(), job);
  return ratio;
}

double StepRatioOf(const v1::Job& job) {
  const v1::StepTime& time = job.step_time();
  return time.predicted_seconds() > 0.0 ? time.corrected_seconds() / time.predicted_seconds() : 0.0;
}

double AloneRatioOf(const v1::Job& job) {
  const v1::StepTime& time = job.step_time();
  return time.predicted_seconds() > 0.0 ? time.alone_seconds() / time.predicted_seconds() : 0.0;
}

void SetStepTime(double ratio, v1::Job& job) {
  const double alone = AloneRatioOf(job);
  v1::StepTime& time = *job.mutable_step_time();
  time.set_predicted_seconds(job.plan().step_seconds());
  time.set_corrected_seconds(ratio * job.plan().step_seconds());
  time.set_alone_seconds(alone * job.plan().step_seconds());
}

absl::Duration LeftUntilEnd(const v1::Job& job) {
  const v1::Progress& progress = job.progress();
  // A plan of an older version predicts nothing: there the last step has to do.
  const double seconds = job.plan().step_seconds() > 0.0 ? job.step_time().corrected_seconds()
                                                         : progress.step_seconds();
  if (!(seconds > 0.0) || progress.max_steps() <= 0) return absl::InfiniteDuration();
  return absl::Seconds(seconds) *
         std::max<int64_t>(0, progress.max_steps() - progress.global_step());
}

}  // namespace snug::server
