#include "server/api/stored_bytes.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"
#include "server/job/job_key.h"
#include "server/retention/leavings.h"
#include "server/scheduler/clock.h"

namespace snug::server {
namespace {

constexpr absl::Duration kBelieved = absl::Seconds(30);
// Whoever is refused asks again at once, and is not looked up each time.
constexpr absl::Duration kRefusalStands = absl::Seconds(1);
constexpr absl::Duration kFirstPatience = absl::Seconds(1);
constexpr absl::Duration kPatience = absl::Milliseconds(100);
constexpr size_t kPage = 1000;

}  // namespace

std::shared_ptr<StoredBytes::Use> StoredBytes::UseOf(const std::string& owner) {
  absl::MutexLock lock(&mutex_);
  std::shared_ptr<Use>& use = uses_[owner];
  if (use == nullptr) use = std::make_shared<Use>();
  return use;
}

bool StoredBytes::BeginCount(const std::string& owner, const std::shared_ptr<Use>& use) {
  use->counting = pool_.Post([this, owner, use] { CountNow(owner, *use); });
  if (use->counting) use->added = 0;
  return use->counting;
}

void StoredBytes::CountNow(const std::string& owner, Use& use) {
  const absl::StatusOr<int64_t> found = count_(owner, stopped_);
  absl::MutexLock lock(&use.mutex);
  use.counting = false;
  use.counted = SinceBoot();
  use.last = found.status();
  if (found.ok()) use.bytes = *found + use.added;
}

absl::Status StoredBytes::Take(const std::string& owner, int64_t bytes) {
  const std::string tenant = TenantOf(owner);
  const int64_t limit = tenants_.QuotaOf(tenant).stored_bytes;
  if (limit == 0) return absl::OkStatus();
  const std::shared_ptr<Use> use = UseOf(owner);
  absl::MutexLock lock(&use->mutex);
  const bool first = use->counted == -absl::InfiniteDuration();
  const auto fits = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(use->mutex) {
    return use->last.ok() && bytes <= limit - use->bytes;
  };
  const absl::Duration age = SinceBoot() - use->counted;
  const bool due = age > kBelieved || (!fits() && age > kRefusalStands);
  if (due && !use->counting && BeginCount(owner, use) && (first || !fits())) {
    // Nobody else waits for it: the threads that answer are few.
    const auto done = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(use->mutex) { return !use->counting; };
    use->mutex.AwaitWithTimeout(absl::Condition(&done), first ? kFirstPatience : kPatience);
  }
  RETURN_IF_ERROR(use->last);
  if (!fits())
    return QuotaExceeded({.tenant = tenant,
                          .field = "quota.stored_bytes",
                          .limit = limit,
                          .value = use->bytes + bytes});
  use->bytes += bytes;
  use->added += bytes;
  return absl::OkStatus();
}

StoredBytes::Count CountOnDisk(const JobIndex& index, const Uploads& uploads,
                               const std::string& state_dir) {
  return
      [&index, &uploads, state_dir](const std::string& owner,
                                    const std::atomic<bool>& stopped) -> absl::StatusOr<int64_t> {
        int64_t bytes = BytesBelow(uploads.FolderOf(owner));
        JobQuery query{.owner = owner, .limit = kPage};
        do {
          ASSIGN_OR_RETURN(const JobPage page, index.List(query));
          for (const ListedJob& listed : page.jobs) {
            if (stopped) return absl::CancelledError("the daemon ends");
            bytes += BytesBelow(absl::StrCat(state_dir, "/jobs/", KeyOf(*listed.job)));
          }
          query.after = page.next;
        } while (query.after != 0);
        return bytes;
      };
}

}  // namespace snug::server
