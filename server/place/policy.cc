#include "server/place/policy.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/place/room.h"

namespace snug::server {
namespace {

bool CouldRunOn(const QueuedJob& job, const DeviceState& device) {
  return LeastOn(job, device) >= 0;
}

// The room in which the job is fastest, or null.
Room* Choose(const QueuedJob& job, std::vector<Room>& rooms, int& plan) {
  Room* best = nullptr;
  const auto rank = [](const Room& room, int fastest) {
    return std::tuple(room.device().gpu, -fastest, -room.device().jobs);
  };
  for (Room& room : rooms) {
    const int fastest = room.Fastest(job);
    if (fastest < 0 || (best != nullptr && rank(room, fastest) <= rank(*best, plan))) continue;
    best = &room;
    plan = fastest;
  }
  return best;
}

std::string ReasonToWait(const QueuedJob& job, const std::vector<Room>& rooms, int ahead) {
  std::map<std::string, std::vector<std::string>> waits;  // Reason -> devices.
  std::vector<std::string> kept;
  for (const Room& room : rooms) {
    if (!CouldRunOn(job, room.device())) continue;
    const std::string reason = room.ReasonFor(job);
    (room.kept() || reason.empty() ? kept : waits[reason]).push_back(room.device().name);
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
  Walk(std::vector<DeviceState> devices, int64_t now_us) : now_us_(now_us) {
    for (DeviceState& device : devices) rooms_.emplace_back(std::move(device));
  }

  // Nobody further down can be placed, or is the head.
  bool Over(const Decision& decision) const {
    const bool full = std::none_of(rooms_.begin(), rooms_.end(),
                                   [](const Room& room) { return room.Offer() > 0; });
    return blocked_ || (full && !decision.head.empty());
  }

  // `reason`: filled in when it is not null and the job waits.
  void Ask(const QueuedJob& job, Decision& decision, std::string* reason) {
    if (job.judgement != Judgement::kJudged) return Await(job, reason);
    if (!Feasible(job)) return decision.infeasible.push_back(job.id);
    if (IsAwaited(job.not_before_us, now_us_)) return AskLater(job, decision, reason);
    const bool shut_out = shut_out_.contains(job.group);
    if (!blocked_ && !shut_out && !stuck_.contains(job.group)) {
      int plan = -1;
      Room* room = Choose(job, rooms_, plan);
      if (room != nullptr) {
        const std::string& device = room->device().name;
        const PlanNeeds& needs = job.plans.at(device)[static_cast<size_t>(plan)];
        decision.placements.push_back({job.id, device, plan, needs.bytes});
        for (Room& each : rooms_) each.TakeHost(needs.host_bytes);
        return room->Place(job, needs.bytes);
      }
    }
    if (shut_out || !HasADevice(job)) {
      shut_out_.insert(job.group);
      if (reason != nullptr) *reason = ReasonToWait(job, rooms_, ahead_);
      return;
    }
    if (!blocked_ && decision.head.empty()) decision.head = job.id;
    if (reason != nullptr) *reason = ReasonToWait(job, rooms_, ahead_);
    ++ahead_;
    if (!stuck_.insert(job.group).second) return;
    for (Room& room : rooms_) room.KeepFor(job);
  }

 private:
  bool Feasible(const QueuedJob& job) {
    const auto [known, is_new] = feasible_.emplace(job.group, false);
    if (is_new)
      known->second = std::any_of(rooms_.begin(), rooms_.end(),
                                  [&](const Room& room) { return CouldRunOn(job, room.device()); });
    return known->second;
  }

  // Else it waits for its owner's own jobs, or for some that it is kept off by, and not for room.
  bool HasADevice(const QueuedJob& job) const {
    return std::any_of(rooms_.begin(), rooms_.end(),
                       [&](const Room& room) { return room.MayTake(job); });
  }

  void Await(const QueuedJob& job, std::string* reason) {
    if (job.judgement == Judgement::kHeld) return;
    if (reason != nullptr) *reason = "its plans are being worked out";
    blocked_ = true;
    ++ahead_;
  }

  void AskLater(const QueuedJob& job, Decision& decision, std::string* reason) const {
    if (decision.next_us == 0 || job.not_before_us < decision.next_us)
      decision.next_us = job.not_before_us;
    if (reason == nullptr) return;
    const int64_t seconds = (job.not_before_us - now_us_) / 1'000'000 + 1;
    *reason = absl::StrCat(job.retry_cause, job.retry_cause.empty() ? "" : "; ", "tries again in ",
                           seconds, " s");
  }

  std::vector<Room> rooms_;
  const int64_t now_us_;
  std::set<int> stuck_;  // Groups of which one waits: the next one waits, too.
  // Groups that have no device. Who is kept off stays so: those further down are behind it in line.
  std::set<int> shut_out_;
  std::map<int, bool> feasible_;  // By group.
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
    if (walk.Over(decision)) break;
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
