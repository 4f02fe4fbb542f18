// The plans of a job on devices, kept for jobs that ask the same: of a sweep over learning rates or
// a burst of like jobs only the first are worked out, and all hold the same ones. Safe for any
// thread.
#ifndef SERVER_SCHEDULER_PLAN_CACHE_H_
#define SERVER_SCHEDULER_PLAN_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/job/check_job.h"
#include "server/plan/planner.h"

namespace snug::server {

using DevicePlans = std::map<std::string, std::vector<v1::Plan>>;  // By device, fastest first.
using SharedPlans = std::shared_ptr<const DevicePlans>;

// A device as a worker would find it. One that may be taken in part is named once for each share.
struct PlannedDevice {
  std::string name;
  int64_t capacity_bytes = 0;
  PlanMachine machine;
  bool operator==(const PlannedDevice&) const = default;
};

enum class PlansWanted {
  kAll,         // For people: keep and every "recompute k of L" as well.
  kForPlacing,  // The fastest for the device and some smaller ones, since queued jobs hold them.
};

class PlanCache {
 public:
  // `max_bytes`: of all answers together; the one that was asked for longest ago goes first.
  explicit PlanCache(size_t max_bytes) : max_bytes_(max_bytes) {}

  // As snug::server::PlansFor, on each of the devices in their order: devices of the same machine
  // share their plans. Among them is the fastest for each device's capacity and the job's budget.
  // Refusals are not kept.
  absl::StatusOr<SharedPlans> PlansFor(const CheckedJob& job, const RowLengths& lengths,
                                       std::vector<PlannedDevice> devices, PlansWanted wanted)
      ABSL_LOCKS_EXCLUDED(mutex_);

  int64_t hits() const ABSL_LOCKS_EXCLUDED(mutex_);  // How many were known.

 private:
  // All that an answer depends on.
  struct Question {
    std::string spec;  // Serialised, without what only names the job.
    std::string weights_digest;
    program::ModelConfig config;
    RowLengths lengths;
    std::vector<PlannedDevice> devices;
    PlansWanted wanted = PlansWanted::kAll;
  };
  struct Answer {
    Question question;
    SharedPlans plans;
    size_t bytes = 0;
  };

  static bool Alike(const Question& a, const Question& b);

  const size_t max_bytes_;
  mutable absl::Mutex mutex_;
  std::list<Answer> answers_ ABSL_GUARDED_BY(mutex_);  // Newest first.
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t hits_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_PLAN_CACHE_H_
