#include "server/scheduler/device_plans.h"

#include <algorithm>
#include <utility>

#include "proto/snug/status_macros.h"
#include "server/plan/plan_cache.h"
#include "worker/program/predict.h"

namespace snug::server {
namespace {

// A job whose plan was not enough gets the next smaller one that fits with its margin; and a device
// may be taken in part. For that these are enough.
constexpr size_t kMixesForPlacing = 16;
constexpr size_t kCachedBytes = 64 << 20;

using Machines = std::vector<std::pair<const Device*, PlanMachine>>;

// Workers of a CPU map the same files. On a GPU each holds a copy of its own.
void Share(const CheckedJob& job, std::vector<v1::Plan>& plans) {
  const int64_t bytes = program::FrozenBytes(job.program);
  if (job.weights_digest.empty() || bytes == 0) return;
  for (v1::Plan& plan : plans) {
    plan.mutable_shared()->set_digest(job.weights_digest);
    plan.mutable_shared()->set_bytes(bytes);
  }
}

// Of all jobs of the process; it is asked until the very end.
PlanCache& Cache() {
  static PlanCache& cache = *new PlanCache(kCachedBytes);
  return cache;
}

// The plans of a job, made once for each machine (threads, kind, context, rates).
absl::StatusOr<DevicePlans> PlansOfMachines(const Machines& machines, const CheckedJob& job,
                                            const RowLengths& lengths, PlansWanted wanted) {
  std::map<PlanMachine, program::PlanList> lists;
  for (const auto& [device, machine] : machines) {
    program::PlanList& list = lists[machine];
    list.limits.push_back(std::min(device->capacity_bytes, BudgetBytes(job.spec)));
    if (wanted == PlansWanted::kAll) continue;
    list.recompute_plans = false;
    list.most_mixes = kMixesForPlacing;
  }
  std::map<PlanMachine, std::vector<v1::Plan>> made;
  for (const auto& [machine, list] : lists) {
    ASSIGN_OR_RETURN(made[machine],
                     Cache().PlansFor(job.program, job.spec, lengths, machine, list));
    if (!machine.gpu) Share(job, made[machine]);
  }
  DevicePlans plans;
  for (const auto& [device, machine] : machines) {
    std::vector<v1::Plan>& there = plans[device->name];
    there.insert(there.end(), made[machine].begin(), made[machine].end());
  }
  return plans;
}

}  // namespace

absl::StatusOr<DevicePlans> PlansByShare(const std::vector<Device>& devices, const CheckedJob& job,
                                         const RowLengths& lengths) {
  Machines machines;
  for (const Device& device : devices)
    for (const int threads : ThreadShares(device))
      machines.emplace_back(&device, MachineOf(device, threads));
  return PlansOfMachines(machines, job, lengths, PlansWanted::kForPlacing);
}

SharedWeights SharedBy(const v1::Plan& plan) {
  return {.digest = plan.shared().digest(), .bytes = plan.shared().bytes()};
}

Promise PromiseOf(const v1::Plan& plan, int64_t bytes) {
  return {.bytes = bytes, .shared = SharedBy(plan), .host_bytes = plan.host_bytes()};
}

int64_t CapOf(const v1::Plan& plan, int oom_failures, double margin) {
  const double extra = static_cast<double>(plan.peak_bytes()) * margin * oom_failures;
  return plan.peak_bytes() + static_cast<int64_t>(extra);
}

absl::StatusOr<DevicePlans> PlansOn(const std::vector<Device>& devices, const CheckedJob& job,
                                    const RowLengths& lengths, PlansWanted wanted) {
  Machines machines;
  for (const Device& device : devices) machines.emplace_back(&device, MachineOf(device));
  return PlansOfMachines(machines, job, lengths, wanted);
}

}  // namespace snug::server
