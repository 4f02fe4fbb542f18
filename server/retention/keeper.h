// The thread that holds ended jobs, files that clients have sent and prepared datasets to the
// limits of the configuration: every few minutes it walks all jobs, newest first, a page at a time,
// then all files and datasets, and removes what is over a limit. It rests after each page and after
// each removal, so that it takes a small part of a core and of the disk.
#ifndef SERVER_RETENTION_KEEPER_H_
#define SERVER_RETENTION_KEEPER_H_

#include <cstdint>
#include <set>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "server/job/job_store.h"
#include "server/metrics/metrics.h"
#include "server/retention/file_sweep.h"
#include "server/retention/limits.h"
#include "server/retention/sweep.h"
#include "server/scheduler/removal.h"
#include "server/scheduler/scheduler.h"
#include "server/upload/uploads.h"

namespace snug::server {

// All outlive the keeper.
struct KeeperParts {
  RetentionLimits limits;
  std::string state_dir;
  JobStore& store;
  const JobIndex& index;
  const Uploads& uploads;
  Scheduler& scheduler;
  Metrics& metrics;
};

class Keeper {
 public:
  // Does nothing where there is no limit.
  explicit Keeper(const KeeperParts& parts);
  ~Keeper();  // Ends the walk within a page.

 private:
  void Loop();
  void SweepOnce();
  // False: the daemon ends.
  bool Rest(absl::Duration how_long) const;
  bool Look(const v1::Job& job, Sweep& sweep, NamedFiles& named);
  // `since`: whatever was asked for later may be of a job that the walk has not seen.
  void SweepFiles(const NamedFiles& named, absl::Time since);
  void SweepDatasets();
  // Folders that a job was prepared with.
  absl::StatusOr<std::set<std::string>> NamedDatasets();
  void RemoveFile(const std::string& owner, const v1::File& file, absl::Time since);
  void Remove(const std::string& job, Leaving what, int64_t bytes);

  const KeeperParts parts_;
  absl::Notification stop_;
  std::thread thread_;
};

}  // namespace snug::server

#endif  // SERVER_RETENTION_KEEPER_H_
