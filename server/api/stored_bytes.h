// What each tenant has on the disk, against its quota: the files that it has sent, and all that its
// jobs have left. Counted by looking, at most every half a minute, and once more before somebody is
// refused; what is sent meanwhile is added. A thread looks, which may take minutes where there are
// many files; what the last look found holds until then.
#ifndef SERVER_API_STORED_BYTES_H_
#define SERVER_API_STORED_BYTES_H_

#include <atomic>
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
#include "server/scheduler/task_pool.h"
#include "server/upload/uploads.h"

namespace snug::server {

// For any thread. Of a tenant without such a quota nothing is counted.
class StoredBytes {
 public:
  // Bytes of an owner's. It ends early, with whatever status, when it is stopped.
  using Count = std::function<absl::StatusOr<int64_t>(const std::string& owner,
                                                      const std::atomic<bool>& stopped)>;

  StoredBytes(const Tenants& tenants, Count count) : tenants_(tenants), count_(std::move(count)) {}
  ~StoredBytes() { stopped_ = true; }

  // Adds so many that the owner is about to have. RESOURCE_EXHAUSTED: they would be more than his
  // tenant's quota, and are not added. Who asks for a look waits a moment for what it finds; before
  // the first one has ended, what is added counts alone.
  absl::Status Take(const std::string& owner, int64_t bytes);

 private:
  struct Use {
    absl::Mutex mutex;
    int64_t bytes ABSL_GUARDED_BY(mutex) = 0;  // As last counted, and those that were added since.
    int64_t added ABSL_GUARDED_BY(mutex) = 0;  // Since the count that runs has begun.
    bool counting ABSL_GUARDED_BY(mutex) = false;
    absl::Duration counted ABSL_GUARDED_BY(mutex) = -absl::InfiniteDuration();  // When.
    absl::Status last ABSL_GUARDED_BY(mutex);  // Of the last count.
  };
  std::shared_ptr<Use> UseOf(const std::string& owner) ABSL_LOCKS_EXCLUDED(mutex_);
  bool BeginCount(const std::string& owner, const std::shared_ptr<Use>& use)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(use->mutex);
  void CountNow(const std::string& owner, Use& use);

  const Tenants& tenants_;
  const Count count_;
  absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<Use>> uses_ ABSL_GUARDED_BY(mutex_);  // By owner.
  std::atomic<bool> stopped_{false};
  TaskPool pool_{1};
};

// What is there on the disk of an owner's uploads, and below the folders of all his jobs.
StoredBytes::Count CountOnDisk(const JobIndex& index, const Uploads& uploads,
                               const std::string& state_dir);

}  // namespace snug::server

#endif  // SERVER_API_STORED_BYTES_H_
