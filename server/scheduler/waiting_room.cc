#include "server/scheduler/waiting_room.h"

#include <utility>

namespace snug::server {
namespace {

constexpr int kBehindAll = INT32_MIN + 1;  // No job's priority, and it has a negative.

}  // namespace

void WaitingRoom::Put(QueuedJob job) {
  absl::MutexLock lock(&mutex_);
  queue_.Put(std::move(job));
}

void WaitingRoom::Remove(const std::string& job) {
  absl::MutexLock lock(&mutex_);
  queue_.Remove(job);
}

Decision WaitingRoom::Round(std::vector<DeviceState> devices, int64_t now_us) {
  absl::MutexLock lock(&mutex_);
  devices_ = std::move(devices);
  return Decide(queue_, devices_, now_us);
}

std::optional<Placement> WaitingRoom::PlaceBehind(QueuedJob job, std::vector<DeviceState> devices,
                                                  int64_t now_us) const {
  JobQueue queue;
  {
    absl::MutexLock lock(&mutex_);
    queue = queue_;
  }
  const auto waiting = queue.in_order();
  for (const auto& [key, other] : waiting)
    if (other.judgement != Judgement::kJudged) queue.Remove(other.id);
  const std::string id = job.id;
  job.priority = kBehindAll;
  job.order = INT64_MAX;
  job.no_steps = true;
  queue.Put(std::move(job));
  const Decision decision = Decide(queue, std::move(devices), now_us);
  for (const Placement& placement : decision.placements)
    if (placement.job == id) return placement;
  return std::nullopt;
}

std::map<std::string, std::string> WaitingRoom::Reasons(const std::set<std::string>& jobs,
                                                        int64_t now_us) const {
  absl::ReaderMutexLock lock(&mutex_);
  return ReasonsToWait(queue_, devices_, now_us, jobs);
}

}  // namespace snug::server
