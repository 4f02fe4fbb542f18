// What each tenant has of what its quota limits: jobs that have not ended, those on their way into
// the store included.
#ifndef SERVER_SCHEDULER_TENANT_USE_H_
#define SERVER_SCHEDULER_TENANT_USE_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "server/job/tenants.h"
#include "server/place/job_queue.h"
#include "server/scheduler/entry.h"

namespace snug::server {

class TenantUse {
 public:
  explicit TenantUse(const Tenants& tenants) : tenants_(tenants) {}

  // Whether its owner may have one more, and such a one. RESOURCE_EXHAUSTED names the quota.
  absl::Status MayCreate(const CreateOrder& order) const;
  void Enter(const std::string& owner) { ++live_jobs_[owner]; }
  void Leave(const std::string& owner);

  // The owner's share of each device; INT64_MAX: all of it.
  int64_t ShareOf(const std::string& owner) const;
  void LimitToShare(const std::string& owner, QueuedJob& job) const;

 private:
  const Tenants& tenants_;
  std::map<std::string, int64_t> live_jobs_;  // By owner.
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_TENANT_USE_H_
