#include "server/scheduler/device_plans.h"

#include <utility>

namespace snug::server {
namespace {

constexpr size_t kCachedBytes = 64 << 20;

// Of all jobs of the process; it is asked until the very end.
PlanCache& Cache() {
  static PlanCache& cache = *new PlanCache(kCachedBytes);
  return cache;
}

PlannedDevice With(const Device& device, const PlanMachine& machine) {
  return {.name = device.name, .capacity_bytes = device.capacity_bytes, .machine = machine};
}

}  // namespace

absl::StatusOr<SharedPlans> PlansByShare(const std::vector<Device>& devices, const CheckedJob& job,
                                         const RowLengths& lengths) {
  std::vector<PlannedDevice> planned;
  for (const Device& device : devices)
    for (const int threads : ThreadShares(device))
      planned.push_back(With(device, MachineOf(device, threads)));
  return Cache().PlansFor(job, lengths, std::move(planned), PlansWanted::kForPlacing);
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

bool CouldGoTo(const v1::Plan& plan, const v1::Plan& other) {
  return other.threads() == plan.threads() && other.host_bytes() <= plan.host_bytes();
}

int64_t MostOf(const std::vector<v1::Plan>& plans, const v1::Plan& plan, int oom_failures,
               double margin) {
  int64_t most = 0;
  for (const v1::Plan& other : plans)
    if (CouldGoTo(plan, other)) most = std::max(most, CapOf(other, oom_failures + 1, margin));
  return most;
}

absl::StatusOr<SharedPlans> PlansOn(const std::vector<Device>& devices, const CheckedJob& job,
                                    const RowLengths& lengths, PlansWanted wanted) {
  std::vector<PlannedDevice> planned;
  for (const Device& device : devices) planned.push_back(With(device, MachineOf(device)));
  return Cache().PlansFor(job, lengths, std::move(planned), wanted);
}

}  // namespace snug::server
