#include "server/place/policy.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

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

// What a walk down the queue has given away so far.
class Walk {
 public:
  Walk(std::vector<DeviceState> devices, int64_t now_us)
      : devices_(std::move(devices)), now_us_(now_us) {}

  // Nobody further down can be placed.
  bool Over() const {
    return blocked_ ||
           std::none_of(devices_.begin(), devices_.end(), [&](const DeviceState& device) {
             return FreeOn(device) >= 0 && !spoken_for_.contains(device.name);
           });
  }

  // `reason`: filled in when it is not null and the job waits.
  void Ask(const QueuedJob& job, Decision& decision, std::string* reason) {
    if (job.judgement != Judgement::kJudged) return Await(job, reason);
    if (!Feasible(job)) return decision.infeasible.push_back(job.id);
    if (job.not_before_us > now_us_) return AskLater(job, decision, reason);
    if (!blocked_ && !stuck_.contains(job.group)) {
      int plan = -1;
      DeviceState* device = Choose(job, devices_, spoken_for_, plan);
      if (device != nullptr) {
        const int64_t bytes = job.plan_bytes.at(device->name)[static_cast<size_t>(plan)];
        decision.placements.push_back({job.id, device->name, plan, bytes});
        device->reserved_bytes += bytes;
        device->jobs += 1;
        return;
      }
    }
    if (reason != nullptr) *reason = ReasonToWait(job, devices_, spoken_for_, ahead_);
    ++ahead_;
    if (!stuck_.insert(job.group).second) return;
    for (const DeviceState& device : devices_)
      if (CouldRunOn(job, device)) spoken_for_.insert(device.name);
  }

 private:
  bool Feasible(const QueuedJob& job) {
    const auto [known, is_new] = feasible_.emplace(job.group, false);
    if (is_new) known->second = CouldEverRun(job, devices_);
    return known->second;
  }

  void Await(const QueuedJob& job, std::string* reason) {
    if (job.judgement == Judgement::kHeld) return;
    if (reason != nullptr) *reason = "its plans are being worked out";
    blocked_ = true;
    ++ahead_;
    for (const DeviceState& device : devices_) spoken_for_.insert(device.name);
  }

  void AskLater(const QueuedJob& job, Decision& decision, std::string* reason) const {
    if (decision.next_us == 0 || job.not_before_us < decision.next_us)
      decision.next_us = job.not_before_us;
    if (reason == nullptr) return;
    const int64_t seconds = (job.not_before_us - now_us_) / 1'000'000 + 1;
    *reason = absl::StrCat(job.retry_cause, job.retry_cause.empty() ? "" : "; ", "tries again in ",
                           seconds, " s");
  }

  std::vector<DeviceState> devices_;
  const int64_t now_us_;
  std::set<std::string> spoken_for_;  // Devices that an older waiting job could use.
  std::set<int> stuck_;               // Groups of which one waits: the next one waits, too.
  std::map<int, bool> feasible_;      // By group.
  int ahead_ = 0;
  bool blocked_ = false;
};

}  // namespace

bool CouldEverRun(const QueuedJob& job, const std::vector<DeviceState>& devices) {
  return std::any_of(devices.begin(), devices.end(),
                     [&](const DeviceState& device) { return CouldRunOn(job, device); });
}

Decision Decide(const JobQueue& queue, std::vector<DeviceState> devices, int64_t now_us) {
  Decision decision;
  Walk walk(std::move(devices), now_us);
  for (const auto& [key, job] : queue.in_order()) {
    if (walk.Over()) break;
    walk.Ask(job, decision, nullptr);
  }
  return decision;
}

std::map<std::string, std::string> ReasonsToWait(const JobQueue& queue,
                                                 std::vector<DeviceState> devices, int64_t now_us,
                                                 const std::set<std::string>& jobs) {
  std::map<std::string, std::string> reasons;
  Decision ignored;
  Walk walk(std::move(devices), now_us);
  for (const auto& [key, job] : queue.in_order()) {
    if (reasons.size() == jobs.size()) break;
    std::string reason;
    const bool wanted = jobs.contains(job.id);
    walk.Ask(job, ignored, wanted ? &reason : nullptr);
    if (!reason.empty()) reasons[job.id] = std::move(reason);
  }
  return reasons;
}

Decision Decide(std::vector<QueuedJob> queue, std::vector<DeviceState> devices, int64_t now_us) {
  JobQueue ordered;
  for (QueuedJob& job : queue) ordered.Put(std::move(job));
  Decision decision;
  Walk walk(devices, now_us);
  for (const auto& [key, job] : ordered.in_order()) {
    std::string reason;
    walk.Ask(job, decision, &reason);
    if (!reason.empty()) decision.waiting[job.id] = std::move(reason);
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
