#include "server/scheduler/device_plans.h"

#include <algorithm>

#include "proto/snug/status_macros.h"

namespace snug::server {

namespace {

// A job whose plan was not enough gets the next smaller one that fits with its margin; and a device
// may be taken in part. For that these are enough.
constexpr size_t kMixesForPlacing = 16;

}  // namespace

absl::StatusOr<DevicePlans> PlansOn(const std::vector<Device>& devices, const CheckedJob& job,
                                    const RowLengths& lengths, PlansWanted wanted) {
  std::map<PlanMachine, program::PlanList> lists;
  for (const Device& device : devices) {
    program::PlanList& list = lists[MachineOf(device)];
    list.limits.push_back(std::min(device.capacity_bytes, BudgetBytes(job.spec)));
    if (wanted == PlansWanted::kAll) continue;
    list.recompute_plans = false;
    list.most_mixes = kMixesForPlacing;
  }
  std::map<PlanMachine, std::vector<v1::Plan>> made;
  for (const auto& [machine, list] : lists) {
    ASSIGN_OR_RETURN(made[machine], PlansFor(job.program, job.spec, lengths, machine, list));
  }
  DevicePlans plans;
  for (const Device& device : devices) plans[device.name] = made[MachineOf(device)];
  return plans;
}

}  // namespace snug::server
