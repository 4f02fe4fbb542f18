#include "server/job/job_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/failpoint.h"
#include "server/job/errors.h"
#include "server/job/log.h"
#include "server/job/schema.h"
#include "server/job/store_reads.h"
#include "server/job/store_rows.h"

namespace snug::server {
namespace {

constexpr int kExitStoreLost = 74;  // EX_IOERR
// A database up to this size is read through at each start (some 0.3 s); a larger one by `snug
// doctor`.
constexpr int64_t kQuickCheckBytes = int64_t{256} << 20;

// One connection, exclusive: no -shm file, no second process; FULL: a commit that returned is on
// the disk.
constexpr const char* kPragmas = R"sql(
PRAGMA locking_mode=EXCLUSIVE;
PRAGMA journal_mode=WAL;
PRAGMA synchronous=FULL;
PRAGMA foreign_keys=ON;
PRAGMA trusted_schema=OFF;
PRAGMA cell_size_check=ON;
PRAGMA mmap_size=0;
PRAGMA wal_autocheckpoint=0;
PRAGMA journal_size_limit=67108864;
PRAGMA cache_size=-32768;
)sql";

// What a statement changes is kept until it is certain that it stands: of these small ones in
// memory, not in a file, which was most of what a submit wrote. A migration's statements, which
// change all rows, have run before.
constexpr const char* kKeepUndoInMemory = "PRAGMA temp_store=MEMORY";

// SQLite swallows an error here, so it is done again by hand (a new file's name must be durable
// too).
absl::Status SyncDirectory(const std::string& dir) {
  const int fd = open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", dir));
  FAILPOINT("store.sync_folder");
  const int failed = fsync(fd);
  const int error = errno;
  close(fd);
  return failed ? absl::ErrnoToStatus(error, absl::StrCat("fsync of ", dir)) : absl::OkStatus();
}

[[noreturn]] void ExitStoreLost(const absl::Status& status) {
  spdlog::critical("the store cannot be trusted any more, exit {}: {}", kExitStoreLost,
                   status.ToString());
  spdlog::default_logger()->flush();
  _exit(kExitStoreLost);
}

// Whether there was a store in this folder, whatever a witness says: folders of jobs are left.
bool HoldsJobs(const std::string& state_dir) {
  std::error_code none;
  return std::filesystem::directory_iterator(state_dir + "/jobs", none) !=
         std::filesystem::directory_iterator();
}

}  // namespace

JobStore::JobStore(StoreOptions options) : options_(std::move(options)) {
  if (!options_.fatal) options_.fatal = ExitStoreLost;
}

JobStore::~JobStore() {
  thread_.reset();
  // Best effort: what is not written back now is read from the WAL at the next start.
  if (database_ != nullptr) database_->Execute("PRAGMA wal_checkpoint(TRUNCATE)").IgnoreError();
  if (witness_ != nullptr) witness_->Sync().IgnoreError();
}

absl::StatusOr<std::unique_ptr<JobStore>> JobStore::Open(StoreOptions options) {
  std::unique_ptr<JobStore> store(new JobStore(std::move(options)));
  RETURN_IF_ERROR(store->OpenWitness());
  RETURN_IF_ERROR(store->OpenDatabase());
  RETURN_IF_ERROR(store->LoadMeta());
  RETURN_IF_ERROR(SyncDirectory(store->options_.state_dir));
  for (const char* name : {"snug.db", "snug.db-wal"}) {
    struct stat file {};
    const std::string path = store->PathOf(name);
    if (stat(path.c_str(), &file) != 0)
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot stat ", path));
    store->files_.emplace_back(path, file);
  }
  RETURN_IF_ERROR(store->Testify());
  RETURN_IF_ERROR(store->witness_->Sync());
  store->ballast_missing_ = !store->MakeBallast();
  store->thread_ = std::make_unique<StoreThread>(
      *store->database_,
      [raw = store.get()](const auto& tasks) { return raw->CommitBatch(tasks); });
  return store;
}

// Before the database is opened: opening makes one where there is none.
absl::Status JobStore::OpenWitness() {
  const std::string path = PathOf("witness"), database = PathOf("snug.db");
  if (options_.accept_loss) {
    spdlog::warn("what {} has seen is not asked: going on with what there is", path);
    unlink(path.c_str());
  }
  ASSIGN_OR_RETURN(witness_, Witness::Open(path));
  struct stat file {};
  if (options_.accept_loss || (stat(database.c_str(), &file) == 0 && file.st_size > 0))
    return absl::OkStatus();
  if (witness_->last()) return Compare(*witness_->last(), std::nullopt, database);
  // Killed in its first moments, a database may be all in its WAL.
  if (access(PathOf("snug.db-wal").c_str(), F_OK) == 0 || !HoldsJobs(options_.state_dir))
    return absl::OkStatus();
  return Compare({}, std::nullopt, absl::StrCat(database, " (jobs/ beside it holds folders)"));
}

absl::Status JobStore::OpenDatabase() {
  const std::string path = PathOf("snug.db");
  ASSIGN_OR_RETURN(database_, Database::Open(path));
  RETURN_IF_ERROR(database_->Execute(kPragmas));
  database_->CountWalPages();
  ASSIGN_OR_RETURN(const int64_t version, database_->QueryInt("PRAGMA user_version"));
  ASSIGN_OR_RETURN(const int64_t application, database_->QueryInt("PRAGMA application_id"));
  ASSIGN_OR_RETURN(const int64_t tables, database_->QueryInt("SELECT count(*) FROM sqlite_master"));
  const bool empty = version == 0 && application == 0 && tables == 0;
  const std::optional<Testimony>& seen = witness_->last();
  if (empty && seen) return Compare(*seen, std::nullopt, path);
  if (!empty && application != kApplicationId)
    return absl::DataLossError(absl::StrCat(path, " is a database of another program"));
  if (version > kSchemaVersion)
    return absl::FailedPreconditionError(absl::StrCat(path, " has schema ", version,
                                                      "; this snugd knows up to ", kSchemaVersion,
                                                      ": start a newer one"));
  struct stat file {};
  if (!empty && stat(path.c_str(), &file) == 0 && file.st_size <= kQuickCheckBytes)
    RETURN_IF_ERROR(database_->Query("PRAGMA quick_check(1)", [&](const Row& row) {
      if (row.Text(0) == "ok") return absl::OkStatus();
      return absl::DataLossError(absl::StrCat(path, " is damaged: ", row.Text(0)));
    }));
  // Compared as it is, before this start writes anything: of a version before witnesses there is
  // nothing to compare with.
  if (seen) {
    ASSIGN_OR_RETURN(const Testimony now, Now());
    RETURN_IF_ERROR(Compare(*seen, now, path));
  }
  RETURN_IF_ERROR(
      Migrate(*database_, version, absl::StrCat(path, ".before-schema-", kSchemaVersion)));
  return database_->Execute(kKeepUndoInMemory);
}

absl::StatusOr<Testimony> JobStore::Now() {
  Testimony now;
  RETURN_IF_ERROR(
      database_->Query("SELECT value FROM meta WHERE key='instance_uuid'", [&](const Row& row) {
        now.instance = row.Text(0);
        return absl::OkStatus();
      }));
  ASSIGN_OR_RETURN(now.sequence, database_->QueryInt("SELECT max(seq) FROM events"));
  ASSIGN_OR_RETURN(const int64_t version, database_->QueryInt("PRAGMA user_version"));
  ASSIGN_OR_RETURN(now.jobs, version < 2 ? database_->QueryInt("SELECT count(*) FROM jobs")
                                         : database_->QueryInt("SELECT jobs FROM counts"));
  return now;
}

// A store that was made before there was the row "served" has none, and counts as one that has
// served.
absl::Status JobStore::LoadMeta() {
  RETURN_IF_ERROR(
      database_->Execute("INSERT OR IGNORE INTO meta SELECT 'served', 'no' FROM meta "
                         "WHERE key='boot_epoch' AND value='0'"));
  RETURN_IF_ERROR(database_->Execute("UPDATE meta SET value = value + 1 WHERE key='boot_epoch'"));
  ASSIGN_OR_RETURN(const Testimony now, Now());
  instance_uuid_ = now.instance;
  ASSIGN_OR_RETURN(boot_epoch_, database_->QueryInt("SELECT CAST(value AS INTEGER) FROM meta "
                                                    "WHERE key='boot_epoch'"));
  ASSIGN_OR_RETURN(const int64_t unserved, database_->QueryInt("SELECT count(*) FROM meta WHERE "
                                                               "key='served' AND value='no'"));
  has_served_ = unserved == 0;
  return absl::OkStatus();
}

absl::Status JobStore::NoteServed() {
  if (has_served_) return absl::OkStatus();
  RETURN_IF_ERROR(Read([](Database& database) {  // One statement, which is its own transaction.
    return database.Execute("UPDATE meta SET value='yes' WHERE key='served'");
  }));
  has_served_ = true;
  return absl::OkStatus();
}

absl::StatusOr<StoredState> JobStore::Load() {
  return Ask<StoredState>([](Database& database) { return LoadState(database); });
}

absl::StatusOr<JobRecord> JobStore::FindJob(const std::string& key) {
  return Ask<JobRecord>([&](Database& database) { return SelectJob(database, key); });
}

absl::StatusOr<JobRecord> JobStore::SearchJob(absl::string_view text, const Principal& who) {
  return Ask<JobRecord>([&](Database& database) { return server::SearchJob(database, text, who); });
}

absl::StatusOr<std::string> JobStore::FindSuccessor(const std::string& name) {
  return Ask<std::string>([&](Database& database) -> absl::StatusOr<std::string> {
    std::string key;
    RETURN_IF_ERROR(database.Query("SELECT job FROM origins WHERE origin=? LIMIT 1", {name},
                                   [&key](const Row& row) {
                                     key = row.Text(0);
                                     return absl::OkStatus();
                                   }));
    return key;
  });
}

absl::StatusOr<JobPage> JobStore::ListJobs(const JobQuery& query) {
  return Ask<JobPage>([&query](Database& database) { return SelectPage(database, query); });
}

absl::Status JobStore::Read(std::function<absl::Status(Database&)> read) {
  return thread_->PostAndWait({.work = std::move(read), .reads = true});
}

absl::Status JobStore::Backup(const std::string& path) {
  RETURN_IF_ERROR(Read([&](Database& database) { return CopyDatabase(database, path); }));
  return SyncDirectory(std::filesystem::path(path).parent_path().string());
}

absl::Status JobStore::Commit(const Change& change, Urgency urgency) {
  return thread_->PostAndWait(
      {.work = [&change](Database& database) { return WriteChange(database, change); },
       .urgency = urgency});
}

void JobStore::CommitAll(std::vector<Change> changes, OnCommitted done) {
  if (changes.empty()) return done({});
  struct Batch {
    std::vector<Change> changes;
    std::vector<absl::Status> results;
    OnCommitted done;
  };
  const auto batch =
      std::make_shared<Batch>(std::move(changes), std::vector<absl::Status>(), std::move(done));
  for (const Change& change : batch->changes) {
    thread_->Post({.work = [&change](Database& database) { return WriteChange(database, change); },
                   .done =
                       [batch](absl::Status status) {
                         batch->results.push_back(std::move(status));
                         if (batch->results.size() == batch->changes.size())
                           batch->done(std::move(batch->results));
                       }});
  }
}

void JobStore::Create(std::shared_ptr<NewJob> job, OnCreated done) {
  const bool writes = job->refusal.ok();
  thread_->Post(
      {.work = [job](Database& database) { return InsertJob(database, *job); },
       .done = [job, done = std::move(done)](const absl::Status& status) { done(job, status); },
       .urgency = writes ? Urgency::kRefusable : Urgency::kMustLand});
}

void JobStore::Maintain() {
  thread_->Post({.work = [this](Database&) { return DoMaintain(); },
                 .done = [](const absl::Status&) {},
                 .reads = true});
}

}  // namespace snug::server
