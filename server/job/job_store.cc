#include "server/job/job_store.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"
#include "server/job/log.h"
#include "server/job/random_id.h"
#include "server/job/store_rows.h"

namespace snug::server {
namespace {

constexpr int64_t kApplicationId = 0x534E5547;  // "SNUG"
constexpr int64_t kSchemaVersion = 1;
constexpr int kExitStoreLost = 74;  // EX_IOERR

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
)sql";

// Network file systems promise neither locks nor fsync in the way that the store relies on.
absl::Status CheckFileSystem(const std::string& dir) {
  struct statfs fs {};
  if (statfs(dir.c_str(), &fs) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot stat the file system of ", dir));
  constexpr long kLustre = 0x0BD00BD0, kCifs = 0xFF534D42, kSmb2 = 0xFE534D42;
  const long type = fs.f_type & 0xFFFFFFFF;
  if (type == NFS_SUPER_MAGIC || type == SMB_SUPER_MAGIC || type == kLustre || type == kCifs ||
      type == kSmb2)
    return absl::FailedPreconditionError(
        absl::StrCat("state directory ", dir, " is on a network file system: use a local disk"));
  return absl::OkStatus();
}

// SQLite swallows an error here, so it is done again by hand (a new file's name must be durable
// too).
absl::Status SyncDirectory(const std::string& dir) {
  const int fd = open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", dir));
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

}  // namespace

JobStore::JobStore(StoreOptions options, std::unique_ptr<Database> database)
    : options_(std::move(options)), database_(std::move(database)) {
  if (!options_.fatal) options_.fatal = ExitStoreLost;
}

JobStore::~JobStore() {
  // Best effort: what is not written back now is read from the WAL at the next start.
  database_->Execute("PRAGMA wal_checkpoint(TRUNCATE)").IgnoreError();
}

absl::StatusOr<std::unique_ptr<JobStore>> JobStore::Open(StoreOptions options) {
  RETURN_IF_ERROR(CheckFileSystem(options.state_dir));
  const std::string dir = options.state_dir;
  ASSIGN_OR_RETURN(std::unique_ptr<Database> database, Database::Open(dir + "/snug.db"));
  std::unique_ptr<JobStore> store(new JobStore(std::move(options), std::move(database)));
  RETURN_IF_ERROR(store->Prepare());
  RETURN_IF_ERROR(store->LoadMeta());
  RETURN_IF_ERROR(SyncDirectory(dir));
  store->ballast_missing_ = !store->MakeBallast();
  return store;
}

absl::Status JobStore::Prepare() {
  RETURN_IF_ERROR(database_->Execute(kPragmas));
  ASSIGN_OR_RETURN(const int64_t version, database_->QueryInt("PRAGMA user_version"));
  ASSIGN_OR_RETURN(const int64_t application, database_->QueryInt("PRAGMA application_id"));
  ASSIGN_OR_RETURN(const int64_t tables, database_->QueryInt("SELECT count(*) FROM sqlite_master"));
  if (version == 0 && application == 0 && tables == 0) return CreateSchema();
  if (application != kApplicationId)
    return absl::DataLossError(
        absl::StrCat(options_.state_dir, "/snug.db is a database of another program"));
  if (version > kSchemaVersion)
    return absl::FailedPreconditionError(absl::StrCat(options_.state_dir, "/snug.db has schema ",
                                                      version, "; this snugd knows up to ",
                                                      kSchemaVersion, ": start a newer one"));
  return database_->Query("PRAGMA quick_check(1)", [&](const Row& row) {
    if (row.Text(0) == "ok") return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(options_.state_dir, "/snug.db is damaged: ", row.Text(0)));
  });
}

absl::Status JobStore::CreateSchema() {
  return database_->Transaction([&] {
    RETURN_IF_ERROR(CreateTables(*database_));
    RETURN_IF_ERROR(database_->Run("INSERT INTO meta VALUES('instance_uuid', ?)", {RandomUuid()}));
    RETURN_IF_ERROR(database_->Execute("INSERT INTO meta VALUES('boot_epoch', '0')"));
    RETURN_IF_ERROR(database_->Execute(absl::StrCat("PRAGMA application_id=", kApplicationId)));
    return database_->Execute(absl::StrCat("PRAGMA user_version=", kSchemaVersion));
  });
}

absl::Status JobStore::LoadMeta() {
  RETURN_IF_ERROR(database_->Execute("UPDATE meta SET value = value + 1 WHERE key='boot_epoch'"));
  RETURN_IF_ERROR(
      database_->Query("SELECT value FROM meta WHERE key='instance_uuid'", [&](const Row& row) {
        instance_uuid_ = row.Text(0);
        return absl::OkStatus();
      }));
  ASSIGN_OR_RETURN(boot_epoch_, database_->QueryInt("SELECT CAST(value AS INTEGER) FROM meta "
                                                    "WHERE key='boot_epoch'"));
  return absl::OkStatus();
}

absl::StatusOr<StoredState> JobStore::Load() { return LoadState(*database_); }

absl::Status JobStore::Write(const Change& change) {
  return database_->Transaction([&] { return WriteChange(*database_, change); });
}

absl::Status JobStore::Commit(const Change& change, Urgency urgency) {
  if (read_only() && urgency == Urgency::kRefusable) return StoreFull();
  absl::Status status = Write(change);
  if (absl::IsResourceExhausted(status)) {
    spdlog::error("the disk of the state directory is full: {}", status.message());
    if (unlink(BallastPath().c_str()) == 0 && urgency == Urgency::kMustLand) status = Write(change);
    ballast_missing_ = true;
    if (absl::IsResourceExhausted(status)) return StoreFull();
  }
  if (absl::IsDataLoss(status)) options_.fatal(status);
  return status;
}

void JobStore::Maintain() {
  absl::Status status = database_->Execute("PRAGMA wal_checkpoint(PASSIVE)");
  if (absl::IsDataLoss(status)) options_.fatal(status);
  if (ballast_missing_) ballast_missing_ = !MakeBallast();
}

std::string JobStore::BallastPath() const { return options_.state_dir + "/ballast"; }

bool JobStore::MakeBallast() {
  if (options_.ballast_bytes == 0) return true;
  const int fd = open(BallastPath().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  const bool made = posix_fallocate(fd, 0, options_.ballast_bytes) == 0;
  close(fd);
  if (!made) unlink(BallastPath().c_str());
  return made;
}

}  // namespace snug::server
