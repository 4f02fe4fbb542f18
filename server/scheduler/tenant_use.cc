#include "server/scheduler/tenant_use.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/job/errors.h"

namespace snug::server {

absl::Status TenantUse::MayCreate(const CreateOrder& order) const {
  const std::string tenant = TenantOf(order.owner);
  const Quota quota = tenants_.QuotaOf(tenant);
  const auto live = live_jobs_.find(order.owner);
  const int64_t jobs = 1 + (live == live_jobs_.end() ? 0 : live->second);
  if (quota.live_jobs > 0 && jobs > quota.live_jobs)
    return QuotaExceeded(
        {.tenant = tenant, .field = "quota.live_jobs", .limit = quota.live_jobs, .value = jobs});
  if (quota.max_steps == 0) return absl::OkStatus();
  // How many steps some epochs are shows when the worker trains.
  const int64_t given = order.spec.training().max_steps();
  if (given == 0)
    return InvalidRequest({{"spec.training.max_steps",
                            absl::StrCat("must be given: a job of tenant ", tenant, " has at most ",
                                         quota.max_steps, " steps"),
                            "BAD_FIELD"}});
  const int64_t steps = given - order.extends.step;
  if (steps <= quota.max_steps) return absl::OkStatus();
  return QuotaExceeded(
      {.tenant = tenant, .field = "quota.max_steps", .limit = quota.max_steps, .value = steps});
}

void TenantUse::Leave(const std::string& owner) {
  const auto live = live_jobs_.find(owner);
  if (live != live_jobs_.end() && --live->second == 0) live_jobs_.erase(live);
}

int64_t TenantUse::ShareOf(const std::string& owner) const {
  const int64_t bytes = tenants_.QuotaOf(TenantOf(owner)).device_bytes;
  return bytes > 0 ? bytes : INT64_MAX;
}

void TenantUse::LimitToShare(const std::string& owner, QueuedJob& job) const {
  job.share_bytes = ShareOf(owner);
  if (job.share_bytes == INT64_MAX) return;
  job.owner = owner;
  job.budget_bytes = std::min(job.budget_bytes, job.share_bytes);
}

}  // namespace snug::server
