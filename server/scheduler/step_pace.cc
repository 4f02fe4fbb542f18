#include "server/scheduler/step_pace.h"

#include <algorithm>
#include <cmath>

namespace snug::server {
namespace {

constexpr double kTimesAsLong = 20.0;  // As the median step, and as the longest pause between two.
// Of processor time between two heartbeats, 5 s apart: below it the process only beats.
constexpr double kCpuOfWorkSeconds = 0.05;

// What may be due. A run may end at an evaluation, by early stopping: then an export comes.
constexpr uint32_t kSaves = 1, kEvaluates = 2, kEndsEpoch = 4;
// What is due at every N-th step is so at two steps in N, and takes its time at one of them: at the
// third it has been seen.
constexpr int kSeenOften = 3;

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

void StepPace::OnStep(const v1::JobSpec& spec, const v1::Progress& progress, absl::Duration now) {
  if (stepped_ && progress.global_step() <= last_.global_step()) return;
  // The first report of an attempt says where it begins.
  if (stepped_ && std::isfinite(progress.step_seconds()) && progress.step_seconds() > 0.0) {
    const absl::Duration pause = now - step_ - absl::Seconds(progress.step_seconds());
    longest_pause_ = std::max(longest_pause_, pause);
    if (const std::optional<uint32_t> due = DueNext(spec)) {
      Pauses& like_it = pauses_[*due];
      like_it.longest = std::max(like_it.longest, pause);
      ++like_it.seen;
    }
    steps_s_.Add(progress.step_seconds());
  }
  last_ = progress;
  stepped_ = true;
  worked_ = step_ = now;
}

void StepPace::OnHeartbeat(const v1::WorkerEvent::Heartbeat& heartbeat, absl::Duration now) {
  if (heartbeat.cpu_seconds() - cpu_seconds_ > kCpuOfWorkSeconds) worked_ = now;
  cpu_seconds_ = std::max(cpu_seconds_, heartbeat.cpu_seconds());
}

std::optional<uint32_t> StepPace::DueNext(const v1::JobSpec& spec) const {
  const v1::TrainingSpec& training = spec.training();
  const int64_t step = last_.global_step();
  if (!stepped_ || steps_s_.empty() || step >= last_.max_steps()) return std::nullopt;
  return (IsDue(step, training.save_steps()) ? kSaves : 0) |
         (IsDue(step, training.eval_steps()) ? kEvaluates : 0) |
         (EndsEpoch(last_) ? kEndsEpoch : 0);  // Which may save and evaluate.
}

absl::Duration StepPace::Overdue(const v1::JobSpec& spec, const PaceLimits& limits,
                                 absl::Duration now) const {
  const absl::Duration of_steps =
      std::max(limits.shortest, absl::Seconds(steps_s_.Get() * kTimesAsLong));
  const std::optional<uint32_t> due = limits.exports ? std::nullopt : DueNext(spec);
  if (due == 0u) return now - step_ - of_steps;
  const bool may_end = due && *due != kSaves && spec.training().early_stopping_patience() > 0;
  const auto known = due && !may_end ? pauses_.find(*due) : pauses_.end();
  if (known != pauses_.end() && known->second.seen >= kSeenOften)
    return now - step_ - of_steps - known->second.longest * kTimesAsLong;
  const absl::Duration idle = now - worked_ - std::max(of_steps, limits.other_work);
  const absl::Duration in_all =
      now - step_ - std::max({of_steps, limits.other_work_in_all, longest_pause_ * kTimesAsLong});
  return std::max(idle, in_all);
}

}  // namespace snug::server
