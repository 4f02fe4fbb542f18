// What the API reads: every job as it was last committed, by id, by beginning of id and by arrival;
// and who watches which.
//
// Written by the scheduler thread alone, read by all. Reads never touch the store. Entries are
// immutable: a reader keeps what it got.
#ifndef SERVER_JOB_JOB_INDEX_H_
#define SERVER_JOB_JOB_INDEX_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>
#include "absl/strings/string_view.h"

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/job/principal.h"
#include "server/job/records.h"
#include "snug/v1/service.pb.h"

namespace snug::server {

using JobPtr = std::shared_ptr<const v1::Job>;

// One who watches a job. Called on the scheduler thread, never under the index's lock; must not
// block.
class JobWatcher {
 public:
  virtual ~JobWatcher() = default;
  virtual void OnChange(const JobPtr& job) = 0;
};

struct ListedJob {
  int64_t order = 0;
  JobPtr job;
};

class JobIndex {
 public:
  void Put(const JobRecord& record) ABSL_LOCKS_EXCLUDED(mutex_);

  // By the id or an unambiguous beginning of it; a whole id wins over longer ones that begin with
  // it.
  // Of the jobs that `who` may see: there are no others for him.
  absl::StatusOr<JobPtr> Find(absl::string_view id, const Principal& who = DaemonPrincipal()) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Oldest first, those that arrived after `after_order`; ended ones only with `all`.
  std::vector<ListedJob> List(int64_t after_order, size_t limit, bool all,
                              const Principal& who) const ABSL_LOCKS_EXCLUDED(mutex_);

  // Registers the watcher and returns the job as it is; every later change is told. Held weakly:
  // dropping it ends the watch.
  absl::StatusOr<JobPtr> Watch(absl::string_view id, const std::shared_ptr<JobWatcher>& watcher)
      ABSL_LOCKS_EXCLUDED(mutex_);

  void PutRequest(const RequestRecord& request) ABSL_LOCKS_EXCLUDED(mutex_);
  // Nothing when it is unknown or older than `now_us` allows.
  std::optional<RequestRecord> FindRequest(const std::string& request_id, int64_t now_us) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // The output folder of a finished full job, for jobs that go on from its model.
  absl::StatusOr<std::string> FinishedModel(const std::string& id, const Principal& who) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The output folder of any finished job.
  absl::StatusOr<std::string> OutputOf(const std::string& id) const ABSL_LOCKS_EXCLUDED(mutex_);

  void PutDevices(std::vector<v1::Device> devices) ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<v1::Device> devices() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Entry {
    JobPtr job;
    int64_t order = 0;
    std::string output_dir;
    std::vector<std::weak_ptr<JobWatcher>> watchers;
  };
  using Entries = std::map<std::string, Entry, std::less<>>;

  absl::StatusOr<Entries::const_iterator> Locate(absl::string_view id, const Principal& who) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  Entries jobs_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, std::string> by_order_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, RequestRecord> requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::Device> devices_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace snug::server

#endif  // SERVER_JOB_JOB_INDEX_H_
