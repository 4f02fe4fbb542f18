// What the API reads: jobs as they were last committed, by key, by what a user calls them, and by
// filter; and who watches which.
//
// Jobs that have not ended are in memory, written by the scheduler thread alone, read by all; the
// others are asked of the archive, which waits for the store. Entries are immutable: a reader keeps
// what it got. Why a job waits is worked out when it is asked for.
#ifndef SERVER_JOB_JOB_INDEX_H_
#define SERVER_JOB_JOB_INDEX_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>
#include "absl/strings/string_view.h"

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/job/job_query.h"
#include "server/job/principal.h"
#include "server/job/records.h"
#include "snug/v1/service.pb.h"

namespace snug::server {

// All jobs there are, ended ones as well. Not for the store's own thread.
class JobArchive {
 public:
  virtual ~JobArchive() = default;
  virtual absl::StatusOr<JobRecord> FindJob(const std::string& key) = 0;
  // The one that `who` means by the text; see JobSearch.
  virtual absl::StatusOr<JobRecord> SearchJob(absl::string_view text, const Principal& who) = 0;
  virtual absl::StatusOr<JobPage> ListJobs(const JobQuery& query) = 0;
};

// One who watches a job. Called on the scheduler thread, never under the index's lock; must not
// block.
class JobWatcher {
 public:
  virtual ~JobWatcher() = default;
  virtual void OnChange(const JobPtr& job) = 0;
};

class JobIndex {
 public:
  // Without an archive ended jobs stay in memory. Before anything reads.
  void SetArchive(JobArchive* archive) { archive_ = archive; }
  // Reasons of queued jobs that have one of their own right now.
  using Reasons =
      std::function<std::map<std::string, std::string>(const std::set<std::string>& jobs)>;
  void SetReasons(Reasons reasons) ABSL_LOCKS_EXCLUDED(mutex_);

  void Put(const JobRecord& record) ABSL_LOCKS_EXCLUDED(mutex_);
  // A job that was deleted.
  void Remove(const std::string& key) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::StatusOr<JobPtr> Find(const std::string& key) const ABSL_LOCKS_EXCLUDED(mutex_);
  // By its name, ID.TENANT, its id or a beginning of that, among the jobs that `who` may see: there
  // are no others for him.
  absl::StatusOr<JobPtr> Search(absl::string_view text, const Principal& who) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // In memory, or null. Waits for nobody.
  JobPtr FindLive(absl::string_view key) const ABSL_LOCKS_EXCLUDED(mutex_);
  // The key of one that names that file as a dataset; empty: there is none.
  std::string LiveJobOn(absl::string_view dataset) const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<JobPage> List(const JobQuery& query) const ABSL_LOCKS_EXCLUDED(mutex_);

  // Registers the watcher and returns the job as it is; every later change is told. Held weakly:
  // dropping it ends the watch.
  absl::StatusOr<JobPtr> Watch(const std::string& key, const std::shared_ptr<JobWatcher>& watcher)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Keys of jobs that somebody watches.
  std::set<std::string> Watched() const ABSL_LOCKS_EXCLUDED(mutex_);

  // The output folder of any job that has one: that has finished, or was cancelled and kept.
  absl::StatusOr<std::string> OutputOf(const std::string& key) const ABSL_LOCKS_EXCLUDED(mutex_);

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
  struct Found {
    JobPtr job;
    std::string output_dir;
  };

  absl::StatusOr<Found> Locate(const std::string& key) const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<JobPtr> FindNamed(absl::string_view name, const Principal& who) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The key of the one that `who` means; without an archive.
  absl::StatusOr<std::string> SearchInMemory(absl::string_view text, const Principal& who) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  JobPage ListInMemory(const JobQuery& query) const ABSL_LOCKS_EXCLUDED(mutex_);
  void Forget(Entries::iterator entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // With the reasons as they are now.
  void FillReasons(const std::vector<JobPtr*>& jobs) const ABSL_LOCKS_EXCLUDED(mutex_);

  JobArchive* archive_ = nullptr;
  mutable absl::Mutex mutex_;
  Reasons reasons_ ABSL_GUARDED_BY(mutex_);
  Entries jobs_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, std::string> by_order_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> watched_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::Device> devices_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace snug::server

#endif  // SERVER_JOB_JOB_INDEX_H_
