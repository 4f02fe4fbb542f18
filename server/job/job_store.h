// The durable memory of the daemon: jobs, attempts, reservations, requests, events, checkpoints,
// artifacts in one SQLite file.
//
// One thread owns it. A Change is one transaction, on disk when Commit returns OK. Everything is
// loaded once at start; there is no other read. It knows no rules of jobs but those that the schema
// can hold: terminal states stay, one open attempt per job, dense events.
#ifndef SERVER_JOB_JOB_STORE_H_
#define SERVER_JOB_JOB_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/job/database.h"
#include "server/job/records.h"

namespace snug::server {

struct StoreOptions {
  std::string state_dir;
  // Freed when the disk is full, so that results of running workers still land.
  int64_t ballast_bytes = 64 << 20;
  // Called when the file can no longer be trusted; must not return. Default: exit code 74 at once,
  // so that nothing more is acknowledged.
  std::function<void(const absl::Status&)> fatal;
};

// Who may take the last space on the disk.
enum class Urgency { kRefusable, kMustLand };

class JobStore {
 public:
  // Creates or opens <state_dir>/snug.db, checks it and counts this start in boot_epoch.
  static absl::StatusOr<std::unique_ptr<JobStore>> Open(StoreOptions options);
  ~JobStore();

  absl::StatusOr<StoredState> Load();
  absl::Status Commit(const Change& change, Urgency urgency = Urgency::kMustLand);

  // When idle: writes the WAL back, makes the ballast again after the disk was full.
  void Maintain();
  // Refuses what is refusable: the disk was full and still is.
  bool read_only() const { return ballast_missing_; }

  const std::string& instance_uuid() const { return instance_uuid_; }
  int64_t boot_epoch() const { return boot_epoch_; }

 private:
  JobStore(StoreOptions options, std::unique_ptr<Database> database);
  absl::Status Prepare();
  absl::Status CreateSchema();
  absl::Status LoadMeta();
  absl::Status Write(const Change& change);
  bool MakeBallast();
  std::string BallastPath() const;

  StoreOptions options_;
  std::unique_ptr<Database> database_;
  std::string instance_uuid_;
  int64_t boot_epoch_ = 0;
  bool ballast_missing_ = false;
};

}  // namespace snug::server

#endif  // SERVER_JOB_JOB_STORE_H_
