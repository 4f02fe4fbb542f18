#include "server/place/policy.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/snug/bytes.h"

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

// What a job could be given now; -1: nothing is placed there.
int64_t FreeOn(const DeviceState& device) {
  if (!device.trouble.empty() || device.jobs >= kMaxJobsPerDevice) return -1;
  return device.capacity_bytes - device.reserved_bytes - device.taken_bytes;
}

// The free device on which the job is fastest, or null.
DeviceState* Choose(const QueuedJob& job, std::vector<DeviceState>& devices,
                    const std::set<std::string>& spoken_for, int& plan) {
  DeviceState* best = nullptr;
  for (DeviceState& device : devices) {
    if (spoken_for.contains(device.name)) continue;
    const int fastest = FastestWithin(job, device.name, FreeOn(device));
    const bool faster =
        best == nullptr || std::tuple(device.gpu, -fastest) > std::tuple(best->gpu, -plan);
    if (fastest < 0 || !faster) continue;
    best = &device;
    plan = fastest;
  }
  return best;
}

// Why a device that no older job waits for cannot be had.
std::string ReasonOf(const DeviceState& device) {
  if (device.jobs >= kMaxJobsPerDevice) return "another job runs there";
  if (!device.trouble.empty()) return device.trouble;
  return absl::StrCat("others have taken ", FormatBytes(device.taken_bytes), " of it");
}

std::string ReasonToWait(const QueuedJob& job, const std::vector<DeviceState>& devices,
                         const std::set<std::string>& spoken_for, int ahead) {
  std::map<std::string, std::vector<std::string>> waits;  // Reason -> devices.
  std::vector<std::string> kept;
  for (const DeviceState& device : devices) {
    if (!CouldRunOn(job, device)) continue;
    (spoken_for.contains(device.name) ? kept : waits[ReasonOf(device)]).push_back(device.name);
  }
  std::vector<std::string> reasons;
  for (const auto& [reason, names] : waits)
    reasons.push_back(absl::StrCat(absl::StrJoin(names, " or "), ": ", reason));
  if (!reasons.empty()) return absl::StrCat("waits for ", absl::StrJoin(reasons, "; or for "));
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
