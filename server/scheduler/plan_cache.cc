#include "server/scheduler/plan_cache.h"

#include <algorithm>
#include <utility>

#include "proto/snug/status_macros.h"
#include "worker/program/planning/predict.h"

namespace snug::server {
namespace {

// A job whose plan was not enough gets the next smaller one that fits with its margin; and a device
// may be taken in part. For that these are enough.
constexpr size_t kMixesForPlacing = 16;

bool SameRows(const program::LengthCounts& a, const program::LengthCounts& b) {
  return a.rows == b.rows && a.tokens == b.tokens && a.rows_of == b.rows_of;
}

bool SameLengths(const RowLengths& a, const RowLengths& b) {
  return SameRows(a.train, b.train) && SameRows(a.eval, b.eval) &&
         SameRows(a.train_sources, b.train_sources) && SameRows(a.eval_sources, b.eval_sources) &&
         a.longest_prompt == b.longest_prompt;
}

std::string WithoutNames(v1::JobSpec spec) {
  spec.clear_display_name();
  spec.clear_labels();
  spec.clear_priority();
  spec.clear_webhook();
  spec.clear_max_slowdown();
  spec.mutable_training()->clear_learning_rate();
  spec.mutable_training()->clear_seed();
  return spec.SerializeAsString();
}

// Workers of a CPU map the same files. On a GPU each holds a copy of its own.
void Share(const CheckedJob& job, std::vector<v1::Plan>& plans) {
  const int64_t bytes = program::FrozenBytes(*job.program);
  if (job.weights_digest.empty() || bytes == 0) return;
  for (v1::Plan& plan : plans) {
    plan.mutable_shared()->set_digest(job.weights_digest);
    plan.mutable_shared()->set_bytes(bytes);
  }
}

absl::StatusOr<DevicePlans> MakePlans(const CheckedJob& job, const RowLengths& lengths,
                                      const std::vector<PlannedDevice>& devices,
                                      PlansWanted wanted) {
  std::map<PlanMachine, program::PlanList> lists;
  for (const PlannedDevice& device : devices) {
    program::PlanList& list = lists[device.machine];
    list.limits.push_back(std::min(device.capacity_bytes, BudgetBytes(job.spec)));
    if (wanted == PlansWanted::kAll) continue;
    list.recompute_plans = false;
    list.most_mixes = kMixesForPlacing;
  }
  std::map<PlanMachine, std::vector<v1::Plan>> made;
  for (const auto& [machine, list] : lists) {
    ASSIGN_OR_RETURN(made[machine], PlansFor(*job.program, job.spec, lengths, machine, list));
    if (!machine.gpu) Share(job, made[machine]);
  }
  DevicePlans plans;
  for (const PlannedDevice& device : devices) {
    const std::vector<v1::Plan>& of_machine = made[device.machine];
    std::vector<v1::Plan>& there = plans[device.name];
    there.insert(there.end(), of_machine.begin(), of_machine.end());
  }
  return plans;
}

size_t BytesOf(const DevicePlans& plans) {
  size_t bytes = 0;
  for (const auto& [device, there] : plans)
    for (const v1::Plan& plan : there) bytes += plan.SpaceUsedLong();
  return bytes;
}

}  // namespace

bool PlanCache::Alike(const Question& a, const Question& b) {
  return a.spec == b.spec && a.weights_digest == b.weights_digest && a.wanted == b.wanted &&
         a.devices == b.devices && SameLengths(a.lengths, b.lengths) && a.config == b.config;
}

int64_t PlanCache::hits() const {
  absl::MutexLock lock(&mutex_);
  return hits_;
}

absl::StatusOr<SharedPlans> PlanCache::PlansFor(const CheckedJob& job, const RowLengths& lengths,
                                                std::vector<PlannedDevice> devices,
                                                PlansWanted wanted) {
  Answer made{.question = {.spec = WithoutNames(job.spec),
                           .weights_digest = job.weights_digest,
                           .config = job.program->config,
                           .lengths = lengths,
                           .devices = std::move(devices),
                           .wanted = wanted},
              .plans = nullptr};
  {
    absl::MutexLock lock(&mutex_);
    const auto known = std::find_if(answers_.begin(), answers_.end(), [&](const Answer& answer) {
      return Alike(answer.question, made.question);
    });
    if (known != answers_.end()) {
      ++hits_;
      answers_.splice(answers_.begin(), answers_, known);
      return known->plans;
    }
  }
  ASSIGN_OR_RETURN(DevicePlans plans, MakePlans(job, lengths, made.question.devices, wanted));
  made.bytes = made.question.spec.size() + BytesOf(plans);
  const SharedPlans answer = made.plans = std::make_shared<const DevicePlans>(std::move(plans));
  absl::MutexLock lock(&mutex_);
  bytes_ += made.bytes;
  answers_.push_front(std::move(made));
  while (bytes_ > max_bytes_) {
    bytes_ -= answers_.back().bytes;
    answers_.pop_back();
  }
  return answer;
}

}  // namespace snug::server
