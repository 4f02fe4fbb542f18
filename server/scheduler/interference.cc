#include "server/scheduler/interference.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/job/check_spec.h"
#include "server/scheduler/step_correction.h"

namespace snug::server {
namespace {

// The part of a neighbour's share of a slowdown that at least has to go with it.
constexpr double kLeastRelief = 0.5;

constexpr int kMostDoublings = 20;

}  // namespace

double FairShareOf(bool gpu, int jobs, int threads, int device_threads) {
  if (gpu) return std::max(1, jobs);
  return std::max(1.0, static_cast<double>(threads) / std::max(1, device_threads));
}

bool Interference::OnStep(const SeenStep& step, const Company& company, absl::Duration after,
                          v1::Job& job) {
  v1::StepTime& time = *job.mutable_step_time();
  time.clear_slowdown();
  if (company.others || company.neighbours != neighbours_) BeginAnew(company.neighbours);
  if (company.others) return false;
  ratios_.Add(step.ratio);
  ++steps_;
  fair_share_ = company.fair_share;
  const bool alone = company.neighbours.empty();
  if (alone && steps_ == kTellingSteps && AloneRatioOf(job) == 0.0)
    time.set_alone_seconds(ratios_.Get() * time.predicted_seconds());
  double usual = AloneRatioOf(job);
  if (usual == 0.0 && company.predictable) usual = 1.0;
  if (usual == 0.0) return false;
  const double slowdown = ratios_.Get() / usual / fair_share_;
  const double bound = MaxSlowdown(job.spec());
  const bool in_vain = SeeRelief(usual, slowdown, bound);
  if (alone) return in_vain;
  time.set_slowdown(slowdown);
  if (bound == 0.0 || slowdown <= bound)
    slow_since_.reset();
  else if (!slow_since_)
    slow_since_ = step.at;
  too_slow_ = slow_since_ && step.at - *slow_since_ >= after && steps_ >= kTellingSteps;
  return in_vain;
}

void Interference::BeginAnew(const std::vector<std::string>& neighbours) {
  neighbours_ = neighbours;
  ratios_ = {};
  steps_ = 0;
  slow_since_.reset();
  too_slow_ = false;
}

// Each neighbour had as much of what was beyond the fair share as the others.
bool Interference::SeeRelief(double usual, double slowdown, double bound) {
  if (!departure_) return false;
  const double before = departure_->ratio / usual / departure_->fair_share;
  if (before <= bound) {  // What is usual was not known yet: there was no need for it.
    departure_.reset();
    return false;
  }
  const bool judged = departure_->helped || steps_ < kTellingSteps;
  if (judged || neighbours_ != departure_->staying) return false;
  const auto neighbours = static_cast<double>(departure_->staying.size() + 1);
  departure_->helped = slowdown <= before - kLeastRelief * (before - 1.0) / neighbours;
  if (departure_->helped) return false;
  departure_.reset();
  return true;
}

void Interference::OnDeparture(const std::string& neighbour, absl::Duration now,
                               absl::Duration keep_off) {
  departure_ = Departure{.staying = neighbours_, .ratio = ratios_.Get(), .fair_share = fair_share_};
  std::erase(departure_->staying, neighbour);
  keeps_off_until_ = now + keep_off * (int64_t{1} << std::min(departures_++, kMostDoublings));
  BeginAnew({});
}

int Interference::bears() const {
  return departure_ ? static_cast<int>(departure_->staying.size()) : INT32_MAX;
}

bool Interference::Lapse(absl::Duration now) {
  if (!departure_ || now < keeps_off_until_) return false;
  departure_.reset();
  return true;
}

std::string SlownessOf(const v1::Job& job) {
  return absl::StrFormat("%.3g times its fair share of time (max_slowdown is %.3g)",
                         job.step_time().slowdown(), MaxSlowdown(job.spec()));
}

std::string WhyItLeaves(const v1::Job& neighbour, const v1::Job& slowed) {
  if (neighbour.owner() != slowed.owner())
    return "slows a job of another user more than that one allows";
  return absl::StrCat("slows ", slowed.id(), ", which takes ", SlownessOf(slowed));
}

std::string LeavingReason(const v1::Job& job) {
  return absl::StrCat("saves a checkpoint and leaves its device: ", job.displacement().reason(),
                      job.keep() ? "; its next worker exports what there is" : "");
}

}  // namespace snug::server
