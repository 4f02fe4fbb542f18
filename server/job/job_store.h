// The durable memory of the daemon: jobs, attempts, reservations, requests, events, checkpoints,
// artifacts in one SQLite file.
//
// One thread owns it; all may call. A Change is one transaction, on disk when Commit returns OK,
// and not acknowledged when the file that holds it is no longer the one in the state folder. It
// knows no rules of jobs but those that the schema can hold: terminal states stay, one open attempt
// per job, dense events.
#ifndef SERVER_JOB_JOB_STORE_H_
#define SERVER_JOB_JOB_STORE_H_

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/job/database.h"
#include "server/job/job_index.h"
#include "server/job/records.h"
#include "server/job/store_thread.h"
#include "server/job/witness.h"

namespace snug::server {

struct StoreOptions {
  std::string state_dir;
  // Freed when the disk is full, so that results of running workers still land.
  int64_t ballast_bytes = 64 << 20;
  // Go on with what there is, although the witness has seen more.
  bool accept_loss = false;
  // Called when the file can no longer be trusted; must not return. Default: exit code 74 at once,
  // so that nothing more is acknowledged.
  std::function<void(const absl::Status&)> fatal = nullptr;
};

class JobStore : public JobArchive {
 public:
  // Creates or opens <state_dir>/snug.db, compares it with its witness, brings it to this version's
  // schema, checks it and counts this start in boot_epoch.
  static absl::StatusOr<std::unique_ptr<JobStore>> Open(StoreOptions options);
  ~JobStore() override;

  // Of jobs that have not ended.
  absl::StatusOr<StoredState> Load();

  absl::StatusOr<JobRecord> FindJob(const std::string& key) override;
  absl::StatusOr<JobRecord> SearchJob(absl::string_view text, const Principal& who) override;
  // One that begins with what the job of that name made; empty: none.
  absl::StatusOr<std::string> FindSuccessor(const std::string& name);
  absl::StatusOr<JobPage> ListJobs(const JobQuery& query) override;

  // Waits until it is on the disk.
  absl::Status Commit(const Change& change, Urgency urgency = Urgency::kMustLand);
  // Each for itself, together on the disk as far as they can be. Does not wait: `done` is called on
  // the store's thread once all are on the disk, or are not; at once where there are none. It must
  // not block. What the changes point to stays until then.
  using OnCommitted = std::function<void(std::vector<absl::Status>)>;
  void CommitAll(std::vector<Change> changes, OnCommitted done);
  // Likewise. ALREADY_EXISTS: the id is taken.
  using OnCreated = std::function<void(std::shared_ptr<NewJob>, absl::Status)>;
  void Create(std::shared_ptr<NewJob> job, OnCreated done);

  // Runs `read` on the store's thread, and waits for it.
  absl::Status Read(std::function<absl::Status(Database&)> read);
  template <typename Result>
  absl::StatusOr<Result> Ask(const std::function<absl::StatusOr<Result>(Database&)>& question) {
    absl::StatusOr<Result> answer = absl::UnknownError("not asked");
    const absl::Status read = Read([&](Database& database) {
      answer = question(database);
      return absl::OkStatus();
    });
    return read.ok() ? std::move(answer) : absl::StatusOr<Result>(read);
  }
  // A copy of all that is committed, into a new file; it is on the disk when this returns OK.
  absl::Status Backup(const std::string& path);

  // When idle: writes the WAL back, makes the ballast again after the disk was full. Does not wait.
  void Maintain();
  // Refuses what is refusable: the disk was full and still is.
  bool read_only() const { return ballast_missing_; }

  const std::string& instance_uuid() const { return instance_uuid_; }
  int64_t boot_epoch() const { return boot_epoch_; }

  // Whether a daemon has ever come as far as serving from this store. Starts that failed do not
  // count.
  bool has_served() const { return has_served_; }
  // On the disk when it returns OK. From one thread.
  absl::Status NoteServed();

 private:
  explicit JobStore(StoreOptions options);
  absl::Status OpenWitness();
  absl::Status OpenDatabase();
  absl::Status LoadMeta();
  absl::StatusOr<Testimony> Now();

  // These run on the store's thread.
  std::vector<absl::Status> CommitBatch(const std::vector<StoreThread::Task*>& tasks);
  std::vector<absl::Status> TryBatch(const std::vector<StoreThread::Task*>& tasks);
  std::vector<absl::Status> TryEach(const std::vector<StoreThread::Task*>& tasks);
  void RetryFull(const std::vector<StoreThread::Task*>& tasks, std::vector<absl::Status>& results);
  absl::Status Testify();
  absl::Status FilesStand();
  absl::Status DoMaintain();
  bool MakeBallast();
  std::string PathOf(const char* name) const { return options_.state_dir + "/" + name; }

  StoreOptions options_;
  std::unique_ptr<Witness> witness_;
  std::unique_ptr<Database> database_;
  std::vector<std::pair<std::string, struct stat>> files_;  // As they were opened.
  std::string instance_uuid_;
  int64_t boot_epoch_ = 0;
  bool has_served_ = false;
  std::atomic<bool> ballast_missing_ = false;
  std::unique_ptr<StoreThread> thread_;
};

// Puts a backup in the place of the state folder's database, which is kept beside it under another
// name. For a state folder that no daemon uses.
absl::Status RestoreStore(const std::string& state_dir, const std::string& backup);

}  // namespace snug::server

#endif  // SERVER_JOB_JOB_STORE_H_
