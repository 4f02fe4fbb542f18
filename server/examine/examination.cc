#include "server/examine/examination.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/snug/status_macros.h"
#include "server/artifact/checkpoints.h"
#include "server/artifact/output.h"
#include "server/examine/examining.h"
#include "server/job/store_rows.h"

namespace snug::server {
namespace {

constexpr int kMaxFindings = 1000;
constexpr int64_t kJobsPerPiece = 500;  // 2 ms: their specs are hashed.

// Files that a row names.
struct NamedFolder {
  std::string job, dir, sha256;
};

absl::Status VerifyArtifact(const NamedFolder& output, const HashWatch& watch) {
  ASSIGN_OR_RETURN(const ArtifactRecord found, HashOutput(output.dir, watch));
  if (found.sha256 == output.sha256) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(output.dir, " is not what was published"));
}

// Pages of the file against one another.
absl::Status CheckPages(Examining& examining) {
  examining.Begin("pages");
  return examining.Look([&](Database& database) {
    return database.Query("PRAGMA quick_check(20)", [&](const Row& row) {
      if (row.Text(0) != "ok") examining.Add("pages", "snug.db", row.Text(0));
      return absl::OkStatus();
    });
  });
}

// Every row of jobs as a start or a read would take it.
absl::Status CheckSpecs(Examining& examining) {
  examining.Begin("spec_sha256");
  const std::string sql = absl::StrCat(
      "SELECT ", kJobColumns, " FROM jobs WHERE arrival>? ORDER BY arrival LIMIT ", kJobsPerPiece);
  int64_t last = 0, before = -1, jobs = 0;
  while (last != before) {
    before = last;
    RETURN_IF_ERROR(examining.Look([&](Database& database) {
      return database.Query(sql, {before}, [&](const Row& row) {
        last = row.Int(4);
        ++jobs;
        const absl::StatusOr<JobRecord> record = ReadJob(row);
        if (!record.ok())
          examining.Add("spec_sha256", row.Text(0), std::string(record.status().message()));
        return absl::OkStatus();
      });
    }));
  }
  examining.result().set_jobs(jobs);
  return absl::OkStatus();
}

// Folders that `sql` names, as `verify` sees them; what has gone meanwhile is not missed.
template <typename Verify>
absl::Status CheckFolders(Examining& examining, const char* check, const std::string& sql,
                          const Verify& verify) {
  examining.Begin(check);
  std::vector<NamedFolder> folders;
  const auto read = [&folders](const Row& row) {
    folders.push_back({row.Text(0), row.Text(1), row.Text(2)});
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(examining.Look([&](Database& database) { return database.Query(sql, read); }));
  const std::vector<NamedFolder> named = std::exchange(folders, {});
  for (const NamedFolder& folder : named) {
    absl::Time begin = absl::Now();
    const absl::Status whole = verify(folder, [&](int64_t, int64_t) {
      RETURN_IF_ERROR(examining.RestSince(begin));
      begin = absl::Now();
      return absl::OkStatus();
    });
    if (whole.ok()) continue;
    if (absl::IsCancelled(whole)) return whole;
    folders.clear();
    RETURN_IF_ERROR(examining.Look([&](Database& database) {
      return database.Query(absl::StrCat("SELECT * FROM (", sql, ") AS t WHERE t.dir=?"),
                            {folder.dir}, read);
    }));
    if (!folders.empty()) examining.Add(check, folder.job, std::string(whole.message()));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Count(Examining& examining, const char* sql) {
  int64_t count = 0;
  RETURN_IF_ERROR(examining.Look([&](Database& database) {
    ASSIGN_OR_RETURN(count, database.QueryInt(sql));
    return absl::OkStatus();
  }));
  return count;
}

absl::Status CountEvents(Examining& examining) {
  ASSIGN_OR_RETURN(const int64_t events, Count(examining, "SELECT count(*) FROM events"));
  examining.result().set_events(events);
  return absl::OkStatus();
}

absl::Status CheckFiles(Examining& examining) {
  RETURN_IF_ERROR(
      CheckFolders(examining, "outputs", "SELECT job, dir, sha256 FROM artifacts", VerifyArtifact));
  return CheckFolders(
      examining, "checkpoints",
      "SELECT c.job, c.dir AS dir, c.manifest_sha256 FROM checkpoints c JOIN jobs ON id=c.job "
      "WHERE c.state=1 AND jobs.state IN (1, 2, 3, 4, 5, 6, 7)",
      [](const NamedFolder& folder, const HashWatch& watch) {
        return VerifyCheckpoint(folder.job, folder.dir, watch).status();
      });
}

}  // namespace

void Examining::Add(const char* check, std::string subject, std::string message) {
  if (result_.findings_size() == kMaxFindings) return;
  v1::CheckStoreResponse::Finding& finding = *result_.add_findings();
  finding.set_check(check);
  finding.set_subject(std::move(subject));
  finding.set_message(std::move(message));
}

absl::Status Examining::RestSince(absl::Time begin) const {
  if (rest_ == nullptr || rest_(absl::Now() - begin)) return absl::OkStatus();
  return absl::CancelledError("the examination was ended");
}

absl::Status Examining::Look(const std::function<absl::Status(Database&)>& look) {
  const absl::Time begin = absl::Now();
  RETURN_IF_ERROR(store_.Read(look));
  return RestSince(begin);
}

absl::StatusOr<v1::CheckStoreResponse> Examine(JobStore& store, const Premises& premises,
                                               const Rest& rest) {
  Examining examining(store, premises, rest);
  ASSIGN_OR_RETURN(const int64_t jobs, Count(examining, "SELECT jobs FROM counts"));
  const bool whole = rest == nullptr || jobs <= kMaxJobsAtOnce;
  if (whole) RETURN_IF_ERROR(CheckPages(examining));
  RETURN_IF_ERROR(CheckRows(examining, whole ? Extent::kAll : Extent::kSmall));
  RETURN_IF_ERROR(CheckPromises(examining));
  RETURN_IF_ERROR(CheckProcesses(examining));
  RETURN_IF_ERROR(CheckResumptions(examining));
  RETURN_IF_ERROR(CheckSpecs(examining));
  RETURN_IF_ERROR(CheckFiles(examining));
  if (whole) RETURN_IF_ERROR(CountEvents(examining));
  return std::move(examining.result());
}

absl::StatusOr<v1::CheckStoreResponse> ExamineLive(JobStore& store, const Premises& premises) {
  const Rest at_once;
  Examining examining(store, premises, at_once);
  RETURN_IF_ERROR(CheckRows(examining, Extent::kLive));
  RETURN_IF_ERROR(CheckPromises(examining));
  return std::move(examining.result());
}

}  // namespace snug::server
