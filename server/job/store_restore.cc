// Restoring: a backup takes the place of the database, which steps aside.
#include <stdio.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/snug/status_macros.h"
#include "server/failpoint.h"
#include "server/job/job_store.h"
#include "server/job/log.h"
#include "server/job/schema.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;

absl::Status CheckBackup(Database& database, const std::string& path) {
  ASSIGN_OR_RETURN(const int64_t application, database.QueryInt("PRAGMA application_id"));
  if (application != kApplicationId)
    return absl::InvalidArgumentError(absl::StrCat(path, " is no backup of Snug's"));
  ASSIGN_OR_RETURN(const int64_t version, database.QueryInt("PRAGMA user_version"));
  if (version > kSchemaVersion)
    return absl::FailedPreconditionError(
        absl::StrCat(path, " has schema ", version, "; this snugd knows up to ", kSchemaVersion));
  return database.Query("PRAGMA integrity_check(1)", [&](const Row& row) {
    if (row.Text(0) == "ok") return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(path, " is damaged: ", row.Text(0)));
  });
}

absl::Status Rename(const std::string& from, const std::string& to) {
  if (FAILS_AT("restore.rename")) return absl::ErrnoToStatus(EIO, "a failed rename");
  if (rename(from.c_str(), to.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot rename ", from));
}

}  // namespace

absl::Status RestoreStore(const std::string& state_dir, const std::string& backup) {
  const std::string path = state_dir + "/snug.db", copy = path + ".restored";
  std::error_code error;
  if (!fs::is_regular_file(backup, error))
    return absl::NotFoundError(absl::StrCat(backup, " is no file"));
  fs::remove(copy, error);
  {
    // Read through, and written anew: the backup itself stays as it is.
    ASSIGN_OR_RETURN(std::unique_ptr<Database> database, Database::Open(backup));
    RETURN_IF_ERROR(CheckBackup(*database, backup));
    RETURN_IF_ERROR(CopyDatabase(*database, copy));
  }
  const std::string aside = absl::StrCat(
      path, ".replaced-", absl::FormatTime("%Y%m%dT%H%M%SZ", absl::Now(), absl::UTCTimeZone()));
  FAILPOINT("restore.copied");
  RETURN_IF_ERROR(Rename(path, aside));
  FAILPOINT("restore.aside");
  RETURN_IF_ERROR(Rename(path + "-wal", aside + "-wal"));
  FAILPOINT("restore.wal_aside");
  RETURN_IF_ERROR(Rename(copy, path));
  FAILPOINT("restore.renamed");
  // Opened as it is: what the witness had seen is not in it. Opening writes the witness anew.
  ASSIGN_OR_RETURN(const std::unique_ptr<JobStore> store,
                   JobStore::Open({.state_dir = state_dir, .accept_loss = true}));
  spdlog::info("{} is in place; what was there is {}", backup, aside);
  return absl::OkStatus();
}

}  // namespace snug::server
