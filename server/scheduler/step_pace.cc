#include "server/scheduler/step_pace.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace snug::server {
namespace {

constexpr size_t kRecentSteps = 32;
constexpr double kTimesAsLong = 20.0;  // As the median step, and as the longest pause between two.
// Of processor time between two heartbeats, 5 s apart: below it the process only beats.
constexpr double kCpuOfWorkSeconds = 0.05;

// At this step, or at the next one: what is due may be under way already.
bool IsDue(int64_t step, int64_t every) {
  return every > 0 && (step % every == 0 || (step + 1) % every == 0);
}

// Whether the data may run out within a step of here.
bool EndsEpoch(const v1::Progress& progress) {
  if (progress.global_step() <= 0) return true;
  const double per_step = progress.epoch() / static_cast<double>(progress.global_step());
  return std::floor(progress.epoch() + 1.5 * per_step) >
         std::floor(progress.epoch() - 0.5 * per_step);
}

}  // namespace

void StepPace::OnStep(const v1::Progress& progress, absl::Duration now) {
  if (stepped_ && progress.global_step() <= last_.global_step()) return;
  // The first report of an attempt says where it begins.
  if (stepped_ && std::isfinite(progress.step_seconds()) && progress.step_seconds() > 0.0) {
    longest_pause_ = std::max(longest_pause_, now - step_ - absl::Seconds(progress.step_seconds()));
    recent_s_.push_back(progress.step_seconds());
    if (recent_s_.size() > kRecentSteps) recent_s_.pop_front();
  }
  last_ = progress;
  stepped_ = true;
  worked_ = step_ = now;
}

void StepPace::OnHeartbeat(const v1::WorkerEvent::Heartbeat& heartbeat, absl::Duration now) {
  if (heartbeat.cpu_seconds() - cpu_seconds_ > kCpuOfWorkSeconds) worked_ = now;
  cpu_seconds_ = std::max(cpu_seconds_, heartbeat.cpu_seconds());
}

absl::Duration StepPace::MedianStep() const {
  if (recent_s_.empty()) return absl::ZeroDuration();
  std::vector<double> sorted(recent_s_.begin(), recent_s_.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return absl::Seconds(*middle);
}

absl::Duration StepPace::LeftUntilEnd() const {
  if (recent_s_.empty() || last_.max_steps() <= 0) return absl::InfiniteDuration();
  const int64_t steps = std::max<int64_t>(0, last_.max_steps() - last_.global_step());
  return MedianStep() * steps;
}

bool StepPace::StepIsNext(const v1::JobSpec& spec) const {
  const v1::TrainingSpec& training = spec.training();
  const int64_t step = last_.global_step();
  if (!stepped_ || recent_s_.empty() || step >= last_.max_steps()) return false;
  if (IsDue(step, training.save_steps()) || IsDue(step, training.eval_steps())) return false;
  // An epoch's end may save and evaluate, and early stopping ends the run at an evaluation.
  return !EndsEpoch(last_);
}

absl::Duration StepPace::Overdue(const v1::JobSpec& spec, const PaceLimits& limits,
                                 absl::Duration now) const {
  const absl::Duration of_steps = std::max(limits.shortest, MedianStep() * kTimesAsLong);
  if (!limits.exports && StepIsNext(spec)) return now - step_ - of_steps;
  const absl::Duration idle = now - worked_ - std::max(of_steps, limits.other_work);
  const absl::Duration in_all =
      now - step_ - std::max({of_steps, limits.other_work_in_all, longest_pause_ * kTimesAsLong});
  return std::max(idle, in_all);
}

}  // namespace snug::server
