#include "server/place/policy.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace snug::server {
namespace {

constexpr int kMaxJobsPerDevice = 1;

int FastestWithin(const QueuedJob& job, const std::string& device, int64_t bytes) {
  const auto plans = job.plan_bytes.find(device);
  if (plans == job.plan_bytes.end()) return -1;
  const int64_t limit = std::min(bytes, job.budget_bytes);
  for (size_t plan = 0; plan < plans->second.size(); ++plan)
    if (plans->second[plan] <= limit) return static_cast<int>(plan);
  return -1;
}

bool CouldRunOn(const QueuedJob& job, const DeviceState& device) {
  return FastestWithin(job, device.name, device.capacity_bytes) >= 0;
}

// The free device on which the job is fastest; the first such by order of configuration. Null:
// none.
DeviceState* Choose(const QueuedJob& job, std::vector<DeviceState>& devices,
                    const std::set<std::string>& spoken_for, int& plan) {
  DeviceState* best = nullptr;
  for (DeviceState& device : devices) {
    if (device.jobs >= kMaxJobsPerDevice || spoken_for.contains(device.name)) continue;
    const int fastest =
        FastestWithin(job, device.name, device.capacity_bytes - device.reserved_bytes);
    if (fastest < 0 || (best != nullptr && fastest >= plan)) continue;
    best = &device;
    plan = fastest;
  }
  return best;
}

std::string ReasonToWait(const QueuedJob& job, const std::vector<DeviceState>& devices,
                         const std::set<std::string>& spoken_for, int ahead) {
  std::vector<std::string> busy, kept;
  for (const DeviceState& device : devices) {
    if (!CouldRunOn(job, device)) continue;
    (spoken_for.contains(device.name) ? kept : busy).push_back(device.name);
  }
  if (!busy.empty())
    return absl::StrCat("waits for ", absl::StrJoin(busy, " or "), ": another job runs there");
  return absl::StrCat("waits for ", absl::StrJoin(kept, " or "), ": ", ahead,
                      ahead == 1 ? " job is" : " jobs are", " ahead of it");
}

}  // namespace

Decision Decide(std::vector<QueuedJob> queue, std::vector<DeviceState> devices, int64_t now_us) {
  std::sort(queue.begin(), queue.end(), [](const QueuedJob& a, const QueuedJob& b) {
    return std::tuple(-a.priority, a.order) < std::tuple(-b.priority, b.order);
  });
  Decision decision;
  std::set<std::string> spoken_for;  // Devices that an older waiting job could use.
  int ahead = 0;
  for (const QueuedJob& job : queue) {
    const bool feasible = std::any_of(devices.begin(), devices.end(),
                                      [&](const DeviceState& d) { return CouldRunOn(job, d); });
    if (!feasible) {
      decision.infeasible.push_back(job.id);
      continue;
    }
    if (job.not_before_us > now_us) {
      const int64_t seconds = (job.not_before_us - now_us) / 1'000'000 + 1;
      decision.waiting[job.id] = absl::StrCat(job.retry_cause, job.retry_cause.empty() ? "" : "; ",
                                              "tries again in ", seconds, " s");
      continue;
    }
    int plan = -1;
    DeviceState* device = Choose(job, devices, spoken_for, plan);
    if (device != nullptr) {
      const int64_t bytes = job.plan_bytes.at(device->name)[static_cast<size_t>(plan)];
      decision.placements.push_back({job.id, device->name, plan, bytes});
      device->reserved_bytes += bytes;
      device->jobs += 1;
      continue;
    }
    decision.waiting[job.id] = ReasonToWait(job, devices, spoken_for, ahead);
    for (const DeviceState& d : devices)
      if (CouldRunOn(job, d)) spoken_for.insert(d.name);
    ++ahead;
  }
  return decision;
}

DeviceState LargestOf(const std::vector<DeviceState>& devices) {
  return *std::max_element(devices.begin(), devices.end(),
                           [](const DeviceState& a, const DeviceState& b) {
                             return a.capacity_bytes < b.capacity_bytes;
                           });
}

}  // namespace snug::server
