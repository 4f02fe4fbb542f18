#include "server/scheduler/waiting_room.h"

#include <utility>

namespace snug::server {

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

std::map<std::string, std::string> WaitingRoom::Reasons(const std::set<std::string>& jobs,
                                                        int64_t now_us) const {
  absl::ReaderMutexLock lock(&mutex_);
  return ReasonsToWait(queue_, devices_, now_us, jobs);
}

}  // namespace snug::server
