// The queue with the devices as the last round saw them, for the scheduler that decides and for all
// who ask why a job waits.
#ifndef SERVER_SCHEDULER_WAITING_ROOM_H_
#define SERVER_SCHEDULER_WAITING_ROOM_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/place/policy.h"

namespace snug::server {

class WaitingRoom {
 public:
  void Put(QueuedJob job) ABSL_LOCKS_EXCLUDED(mutex_);
  void Remove(const std::string& job) ABSL_LOCKS_EXCLUDED(mutex_);
  Decision Round(std::vector<DeviceState> devices, int64_t now_us) ABSL_LOCKS_EXCLUDED(mutex_);
  // Where one would be placed that comes behind all who wait, and is given only what they will not
  // miss; empty: nowhere now. Those whose plans are not known yet are not waited for.
  std::optional<Placement> PlaceBehind(QueuedJob job, std::vector<DeviceState> devices,
                                       int64_t now_us) const ABSL_LOCKS_EXCLUDED(mutex_);
  std::map<std::string, std::string> Reasons(const std::set<std::string>& jobs,
                                             int64_t now_us) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  JobQueue queue_ ABSL_GUARDED_BY(mutex_);
  std::vector<DeviceState> devices_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_WAITING_ROOM_H_
