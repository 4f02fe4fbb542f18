// What each tenant has on the disk, against its quota: the files that it has sent, and all that its
// jobs have left. Counted by looking, at most every half a minute, and once more before somebody is
// refused; what is sent meanwhile is added.
#ifndef SERVER_API_STORED_BYTES_H_
#define SERVER_API_STORED_BYTES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/job/job_index.h"
#include "server/job/tenants.h"
#include "server/upload/uploads.h"

namespace snug::server {

// For any thread. Of a tenant without such a quota nothing is counted.
class StoredBytes {
 public:
  // Bytes of an owner's.
  using Count = std::function<absl::StatusOr<int64_t>(const std::string& owner)>;

  StoredBytes(const Tenants& tenants, Count count) : tenants_(tenants), count_(std::move(count)) {}

  // Adds so many that the owner is about to have. RESOURCE_EXHAUSTED: they would be more than his
  // tenant's quota, and are not added. May look at the disk, and then takes a while.
  absl::Status Take(const std::string& owner, int64_t bytes);

 private:
  struct Use {
    absl::Mutex mutex;  // One looks, the others of his tenant's wait for it.
    int64_t bytes ABSL_GUARDED_BY(mutex) = 0;
    absl::Duration counted ABSL_GUARDED_BY(mutex) = -absl::InfiniteDuration();  // When.
  };
  std::shared_ptr<Use> UseOf(const std::string& owner) ABSL_LOCKS_EXCLUDED(mutex_);

  const Tenants& tenants_;
  const Count count_;
  absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<Use>> uses_ ABSL_GUARDED_BY(mutex_);  // By owner.
};

// What is there on the disk of an owner's uploads, and below the folders of all his jobs.
StoredBytes::Count CountOnDisk(const JobIndex& index, const Uploads& uploads,
                               const std::string& state_dir);

}  // namespace snug::server

#endif  // SERVER_API_STORED_BYTES_H_
