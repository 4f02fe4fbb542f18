#include "server/examine/examination.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/snug/status_macros.h"
#include "server/artifact/output.h"
#include "server/examine/examining.h"
#include "server/job/store_rows.h"

namespace snug::server {
namespace {

constexpr int kMaxFindings = 1000;
// A part of a table is read in about this time: after one that took longer, the next has half as
// many rows, after others twice as many. Of a million jobs (8 GB, two busy cores) 99 of 100 parts
// took less than 22 ms, from a cold disk, and half of them less than 5 ms.
constexpr absl::Duration kLookTime = absl::Milliseconds(5);
constexpr int64_t kFirstRows = 64;
constexpr int64_t kMostRows = 1000;  // They are kept until they are done with.
// 6 ms of attempts, whose plans are large.
constexpr int64_t kMostRowsWithPages = 1000;

// An output that a row names.
struct NamedOutput {
  std::string job, dir, sha256;
};

absl::Status PagesOf(Database& database, const std::string& what, Examining& examining) {
  return database.Query(absl::StrCat("PRAGMA quick_check(", what, ")"), [&](const Row& row) {
    if (row.Text(0) != "ok") examining.Add("pages", "snug.db", row.Text(0));
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<std::string>> TablesOf(Examining& examining) {
  std::vector<std::string> tables;
  RETURN_IF_ERROR(examining.Look([&](Database& database) {
    return database.Query("SELECT name FROM sqlite_master WHERE type='table'", [&](const Row& row) {
      tables.push_back(row.Text(0));
      return absl::OkStatus();
    });
  }));
  return tables;
}

absl::Status PagesOfSmall(Examining& examining, const std::string& table) {
  const std::string rows =
      absl::StrCat("SELECT count(*) FROM (SELECT 1 FROM ", table, " LIMIT ?1)");
  return examining.Look([&](Database& database) -> absl::Status {
    ASSIGN_OR_RETURN(const int64_t found, database.QueryInt(rows, {kMostRowsWithPages + 1}));
    return found > kMostRowsWithPages ? absl::OkStatus() : PagesOf(database, table, examining);
  });
}

// Pages of the file against one another. SQLite compares those of a table all at once, and commits
// wait meanwhile: 2.5 s for the events of a million jobs. So the examiner leaves tables of many
// rows to `snug doctor`, and to a start as long as the file is small. The other checks read the
// rows of jobs, attempts, events, checkpoints and outputs, and find pages there that cannot be
// read. Only this one finds keys out of order, pages that two tables claim, and damage in what no
// other check goes by: some indexes, and the bodies of requests.
absl::Status CheckPages(Examining& examining) {
  examining.Begin("pages");
  if (!examining.paced())
    return examining.Look([&](Database& database) { return PagesOf(database, "20", examining); });
  ASSIGN_OR_RETURN(const std::vector<std::string> tables, TablesOf(examining));
  for (const std::string& table : tables)
    RETURN_IF_ERROR(examining.NoteDamage(PagesOfSmall(examining, table)));
  return absl::OkStatus();
}

// Every row of jobs as a start or a read would take it.
absl::Status CheckSpecs(Examining& examining) {
  examining.Begin("spec_sha256");
  const std::string sql =
      absl::StrCat("SELECT ", kJobColumns, " FROM jobs WHERE arrival BETWEEN ?1 AND ?2");
  int64_t jobs = 0;
  RETURN_IF_ERROR(
      examining.LookThrough({"jobs", "arrival"}, [&](Database& database, const Range& range) {
        return database.Query(sql, range, [&](const Row& row) {
          ++jobs;
          const absl::StatusOr<JobRecord> record = ReadJob(row);
          if (!record.ok())
            examining.Add("spec_sha256", row.Text(0), std::string(record.status().message()));
          return absl::OkStatus();
        });
      }));
  examining.result().set_jobs(jobs);
  return absl::OkStatus();
}

absl::Status VerifyArtifact(const NamedOutput& output, const HashWatch& watch) {
  ASSIGN_OR_RETURN(const ArtifactRecord found, HashOutput(output.dir, watch));
  if (found.sha256 == output.sha256) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(output.dir, " is not what was published"));
}

// What has gone meanwhile is not missed.
absl::Status CheckOutput(Examining& examining, const NamedOutput& output) {
  const absl::Status whole = VerifyArtifact(output, examining.RestsWithinFiles());
  if (whole.ok() || absl::IsCancelled(whole)) return whole;
  ASSIGN_OR_RETURN(const int64_t named,
                   examining.Count("SELECT count(*) FROM artifacts WHERE job=? AND dir=?",
                                   {output.job, output.dir}));
  if (named > 0) examining.Add("outputs", output.job, std::string(whole.message()));
  return absl::OkStatus();
}

absl::Status CheckOutputs(Examining& examining) {
  examining.Begin("outputs");
  std::vector<NamedOutput> outputs;
  const auto read = [&](Database& database, const Range& range) {
    outputs.clear();
    return database.Query("SELECT job, dir, sha256 FROM artifacts WHERE job BETWEEN ?1 AND ?2",
                          range, [&](const Row& row) {
                            outputs.push_back({row.Text(0), row.Text(1), row.Text(2)});
                            return absl::OkStatus();
                          });
  };
  return examining.LookThrough({"artifacts", "job"}, read, [&] {
    for (const NamedOutput& output : outputs) RETURN_IF_ERROR(CheckOutput(examining, output));
    return absl::OkStatus();
  });
}

// Those of rows come first: they are over soonest.
constexpr absl::Status (*kChecks[])(Examining&) = {
    CheckPages,     CheckLiveRows,    CheckRows,  CheckReferences, CheckHistories,  CheckPromises,
    CheckProcesses, CheckResumptions, CheckSpecs, CheckOutputs,    CheckCheckpoints};

}  // namespace

void Examining::Add(const char* check, std::string subject, std::string message) {
  if (result_.findings_size() == kMaxFindings) return;
  v1::CheckStoreResponse::Finding& finding = *result_.add_findings();
  finding.set_check(check);
  finding.set_subject(std::move(subject));
  finding.set_message(std::move(message));
}

absl::Status Examining::NoteDamage(const absl::Status& status) {
  if (!absl::IsDataLoss(status)) return status;
  Add(result_.checks(result_.checks_size() - 1).c_str(), "snug.db", std::string(status.message()));
  return absl::OkStatus();
}

absl::Status Examining::RestSince(absl::Time begin) const {
  if (rest_ == nullptr || rest_(absl::Now() - begin)) return absl::OkStatus();
  return absl::CancelledError("the examination was ended");
}

HashWatch Examining::RestsWithinFiles() const {
  return [this, begin = absl::Now()](int64_t, int64_t) mutable {
    RETURN_IF_ERROR(RestSince(begin));
    begin = absl::Now();
    return absl::OkStatus();
  };
}

absl::Status Examining::Look(const std::function<absl::Status(Database&)>& look) {
  const absl::Time begin = absl::Now();
  RETURN_IF_ERROR(store_.Read(look));
  return RestSince(begin);
}

absl::StatusOr<int64_t> Examining::Count(const char* sql, const std::vector<SqlValue>& values) {
  int64_t count = 0;
  RETURN_IF_ERROR(Look([&](Database& database) {
    ASSIGN_OR_RETURN(count, database.QueryInt(sql, values));
    return absl::OkStatus();
  }));
  return count;
}

absl::Status Examining::LookThrough(const Column& column, const RangeLook& look,
                                    const std::function<absl::Status()>& beside) {
  // The first part begins with whatever the least value is.
  const auto next = [&](const std::string& where) {
    return absl::StrCat("SELECT count(*), min(k), max(k) FROM (SELECT ", column.name, " AS k FROM ",
                        column.table, where, " ORDER BY k LIMIT ?2)");
  };
  std::string sql = next(""), first, last;
  int64_t most = kFirstRows, found = 0;
  for (bool more = true; more; sql = next(absl::StrCat(" WHERE ", column.name, ">?1"))) {
    RETURN_IF_ERROR(Look([&](Database& database) -> absl::Status {
      const absl::Time begin = absl::Now();
      RETURN_IF_ERROR(database.Query(sql, {last, most}, [&](const Row& row) {
        found = row.Int(0);
        if (found > 0) first = row.Text(1), last = row.Text(2);
        return absl::OkStatus();
      }));
      if (found > 0) RETURN_IF_ERROR(look(database, {first, last}));
      more = found == most;
      most = absl::Now() - begin > kLookTime ? std::max<int64_t>(most / 2, 1)
                                             : std::min(most * 2, kMostRows);
      return absl::OkStatus();
    }));
    if (found > 0 && beside != nullptr) RETURN_IF_ERROR(beside());
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::CheckStoreResponse> Examine(JobStore& store, const Premises& premises,
                                               const Rest& rest) {
  Examining examining(store, premises, rest);
  for (const auto check : kChecks) RETURN_IF_ERROR(examining.NoteDamage(check(examining)));
  return std::move(examining.result());
}

absl::StatusOr<v1::CheckStoreResponse> ExamineLive(JobStore& store, const Premises& premises) {
  const Rest at_once;
  Examining examining(store, premises, at_once);
  RETURN_IF_ERROR(CheckLiveRows(examining));
  RETURN_IF_ERROR(examining.NoteDamage(CheckPromises(examining)));
  return std::move(examining.result());
}

}  // namespace snug::server
