#include "server/place/squeeze.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace snug::server {
namespace {

// A change costs the time of lowering a plan: less than this share of a job's speed is not worth
// it.
constexpr double kLeastGain = 0.01;
// Beyond it a difference of priorities is as good as infinite.
constexpr int kMostDoublings = 30;

// Of a job beside one of `priority`.
double WeightBeside(const SqueezableJob& job, int priority) {
  return std::exp2(std::clamp(job.priority - priority, -kMostDoublings, kMostDoublings));
}

// A job with its weight and the speeds of its plans.
class Weighed {
 public:
  Weighed(const SqueezableJob& job, int priority) : job_(&job), plan_(job.current) {
    double fastest = std::numeric_limits<double>::infinity();
    for (const PlanOption& plan : job.plans) fastest = std::min(fastest, plan.seconds);
    for (const PlanOption& plan : job.plans)
      values_.push_back(WeightBeside(job, priority) * fastest / plan.seconds);
    least_gain_ = WeightBeside(job, priority) * kLeastGain;
  }

  int plan() const { return plan_; }
  void Take(int plan) { plan_ = plan; }
  int plans() const { return static_cast<int>(values_.size()); }
  bool moved() const { return plan_ != job_->current; }
  PlanMove move() const { return {job_->job, plan_}; }
  double least_gain() const { return least_gain_; }

  double ValueOf(int plan) const { return values_[static_cast<size_t>(plan)]; }
  int64_t BytesOf(int plan) const { return job_->plans[static_cast<size_t>(plan)].bytes; }
  // By going from its plan to this one.
  double LossBy(int plan) const { return ValueOf(plan_) - ValueOf(plan); }
  int64_t FreedBy(int plan) const { return BytesOf(plan_) - BytesOf(plan); }

 private:
  const SqueezableJob* job_;
  int plan_;
  double least_gain_ = 0.0;
  std::vector<double> values_;  // Weight times speed, by plan.
};

std::vector<Weighed> Weigh(const std::vector<SqueezableJob>& jobs, int priority) {
  std::vector<Weighed> weighed;
  weighed.reserve(jobs.size());
  for (const SqueezableJob& job : jobs) weighed.emplace_back(job, priority);
  return weighed;
}

// The least loss by which the jobs free so many bytes, for all amounts up to a largest: a knapsack
// with one choice per job, over bytes in at most kSteps steps, what is freed rounded down.
class LeastLosses {
 public:
  static constexpr int64_t kSteps = 4096;

  LeastLosses(const std::vector<Weighed>& jobs, int64_t most_bytes)
      : jobs_(jobs), unit_(std::max<int64_t>(1, (most_bytes + kSteps - 1) / kSteps)) {
    const auto steps = static_cast<size_t>(StepsFor(most_bytes));
    losses_.assign(steps + 1, kNever);
    losses_[0] = 0.0;
    for (const Weighed& job : jobs) Add(job);
  }

  // Infinite: there are not so many.
  double Of(int64_t bytes) const { return losses_[static_cast<size_t>(StepsFor(bytes))]; }

  // How it is done.
  std::vector<PlanMove> MovesFor(int64_t bytes) const {
    std::vector<PlanMove> moves;
    auto step = static_cast<size_t>(StepsFor(bytes));
    for (size_t i = jobs_.size(); i-- > 0;) {
      Weighed job = jobs_[i];
      const int plan = chosen_[i][step];
      step -= std::min(step, FreedSteps(job, plan));
      job.Take(plan);
      if (job.moved()) moves.push_back(job.move());
    }
    return moves;
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  int64_t StepsFor(int64_t bytes) const {
    return std::max<int64_t>(0, (bytes + unit_ - 1) / unit_);
  }
  size_t FreedSteps(const Weighed& job, int plan) const {
    return static_cast<size_t>(std::max<int64_t>(0, job.FreedBy(plan)) / unit_);
  }

  void Add(const Weighed& job) {
    const std::vector<double> before = losses_;
    std::vector<int>& chosen = chosen_.emplace_back(before.size(), job.plan());
    for (int plan = 0; plan < job.plans(); ++plan) {
      if (job.FreedBy(plan) <= 0) continue;
      const size_t freed = FreedSteps(job, plan);
      const double loss = job.LossBy(plan);
      for (size_t step = 0; step < losses_.size(); ++step) {
        const double with = before[step - std::min(step, freed)] + loss;
        if (with >= losses_[step]) continue;
        losses_[step] = with;
        chosen[step] = plan;
      }
    }
  }

  const std::vector<Weighed>& jobs_;
  const int64_t unit_;                    // Bytes of a step.
  std::vector<double> losses_;            // By steps to free.
  std::vector<std::vector<int>> chosen_;  // By job and steps to free by it and those before it.
};

}  // namespace

int FastestPlanWithin(const std::vector<PlanOption>& plans, int64_t bytes) {
  int fastest = -1;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (plans[i].bytes > bytes) continue;
    const PlanOption* best = fastest < 0 ? nullptr : &plans[static_cast<size_t>(fastest)];
    if (best == nullptr || plans[i].seconds < best->seconds ||
        (plans[i].seconds == best->seconds && plans[i].bytes < best->bytes))
      fastest = static_cast<int>(i);
  }
  return fastest;
}

std::optional<RoomMade> MakeRoom(const SqueezableJob& newcomer,
                                 const std::vector<SqueezableJob>& neighbours, int64_t free_bytes) {
  const Weighed wanted(newcomer, newcomer.priority);
  const std::vector<Weighed> jobs = Weigh(neighbours, newcomer.priority);
  int64_t most = 0;
  for (const PlanOption& plan : newcomer.plans) most = std::max(most, plan.bytes - free_bytes);
  const LeastLosses losses(jobs, most);
  std::optional<RoomMade> best;
  int64_t best_missing = 0;
  for (int plan = 0; plan < wanted.plans(); ++plan) {
    const int64_t missing = wanted.BytesOf(plan) - free_bytes;
    const double gain = wanted.ValueOf(plan) - losses.Of(missing);
    if (gain <= kLeastGain || (best && gain <= best->gain)) continue;
    best.emplace().gain = gain;
    best_missing = missing;
  }
  if (best) best->moves = losses.MovesFor(best_missing);
  return best;
}

std::vector<PlanMove> FillRoom(const std::vector<SqueezableJob>& jobs, int64_t free_bytes) {
  int highest = std::numeric_limits<int>::min();
  for (const SqueezableJob& job : jobs) highest = std::max(highest, job.priority);
  std::vector<Weighed> weighed = Weigh(jobs, highest);
  while (true) {
    Weighed* best = nullptr;
    int to = 0;
    double most = 0.0;
    for (Weighed& job : weighed) {
      for (int plan = 0; plan < job.plans(); ++plan) {
        const double gain = -job.LossBy(plan);
        const int64_t more = -job.FreedBy(plan);
        // One that changes its plan anyway may as well have the best.
        if (gain < (job.moved() ? 0.0 : job.least_gain()) || more > free_bytes) continue;
        const double rate = gain / static_cast<double>(std::max<int64_t>(more, 1));
        if (rate <= most) continue;
        most = rate;
        best = &job;
        to = plan;
      }
    }
    if (best == nullptr) break;
    free_bytes += best->FreedBy(to);
    best->Take(to);
  }
  std::vector<PlanMove> moves;
  for (const Weighed& job : weighed)
    if (job.moved()) moves.push_back(job.move());
  return moves;
}

}  // namespace snug::server
