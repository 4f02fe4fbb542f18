#include "server/examine/examination.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/snug/status_macros.h"
#include "server/artifact/checkpoints.h"
#include "server/artifact/output.h"
#include "server/job/store_rows.h"

namespace snug::server {
namespace {

constexpr int kMaxFindings = 1000;
constexpr int64_t kJobsPerPiece = 500;  // 2 ms: their specs are hashed.

// Rows that must not be: each gives what is wrong with what.
struct Rule {
  const char* name;
  const char* sql;     // subject, message
  bool large = false;  // Reads what every job has ever left.
};

constexpr Rule kRules[] = {
    {"foreign_keys",
     "SELECT \"table\", 'a row without its parent in ' || parent "
     "FROM pragma_foreign_key_check",
     true},
    {"one_open_attempt",
     "SELECT job, count(*) || ' attempts are open' FROM attempts "
     "WHERE state<6 GROUP BY job HAVING count(*)>1"},
    {"open_attempt_of_a_job_without",
     "SELECT job, 'an attempt is open, and the job has none' FROM "
     "attempts JOIN jobs ON id=job WHERE attempts.state<6 AND "
     "jobs.state NOT IN (3, 4, 5, 7)"},
    {"attempt_of_a_job_with_one",
     "SELECT id, 'no attempt is open, and the job has one' FROM jobs "
     "WHERE state IN (3, 4, 5, 7) AND NOT EXISTS(SELECT 1 FROM "
     "attempts WHERE job=id AND state<6)"},
    {"reservation_of_an_open_attempt",
     "SELECT job, 'bytes are promised to an attempt that is "
     "closed' FROM reservations r WHERE NOT EXISTS(SELECT 1 FROM "
     "attempts a WHERE a.job=r.job AND a.epoch=r.epoch AND "
     "a.state<6)"},
    {"dense_events",
     "SELECT 'events', 'of ' || max(seq) || ' there are ' || count(*) FROM events "
     "HAVING count(*)<>max(seq)",
     true},
    {"last_event_is_the_state",
     "SELECT id, 'is in state ' || state || ', and its last event says ' || e.new "
     "FROM (SELECT max(seq) AS last FROM events GROUP BY job) JOIN events e ON e.seq=last "
     "JOIN jobs ON id=e.job WHERE e.new<>state",
     true},
    {"count_of_jobs",
     "SELECT 'jobs', 'there are ' || (SELECT count(*) FROM jobs) || ', counted as ' "
     "|| jobs FROM counts WHERE jobs<>(SELECT count(*) FROM jobs)"},
    {"output_of_a_success",
     "SELECT id, 'has succeeded, and has no output' FROM jobs WHERE state=8 "
     "AND NOT EXISTS(SELECT 1 FROM artifacts WHERE job=id)"},
};

// Files that a row names.
struct NamedFolder {
  std::string job, dir, sha256;
};

class Examination {
 public:
  Examination(JobStore& store, const Rest& rest) : store_(store), rest_(rest) {}

  void Add(const char* check, std::string subject, std::string message) {
    if (result_.findings_size() == kMaxFindings) return;
    v1::CheckStoreResponse::Finding& finding = *result_.add_findings();
    finding.set_check(check);
    finding.set_subject(std::move(subject));
    finding.set_message(std::move(message));
  }

  void Begin(const char* check) { result_.add_checks(check); }

  // Behind each piece of the work, which began then.
  absl::Status RestSince(absl::Time begin) const {
    if (rest_ == nullptr || rest_(absl::Now() - begin)) return absl::OkStatus();
    return absl::CancelledError("the examination was ended");
  }

  // On the store's thread.
  absl::Status Look(const std::function<absl::Status(Database&)>& look) {
    const absl::Time begin = absl::Now();
    RETURN_IF_ERROR(store_.Read(look));
    return RestSince(begin);
  }

  absl::Status Apply(const Rule& rule) {
    Begin(rule.name);
    return Look([&](Database& database) {
      return database.Query(rule.sql, [&](const Row& row) {
        Add(rule.name, row.Text(0), row.Text(1));
        return absl::OkStatus();
      });
    });
  }

  // Pages of the file against one another.
  absl::Status CheckPages() {
    Begin("pages");
    return Look([&](Database& database) {
      return database.Query("PRAGMA quick_check(20)", [&](const Row& row) {
        if (row.Text(0) != "ok") Add("pages", "snug.db", row.Text(0));
        return absl::OkStatus();
      });
    });
  }

  // Every row of jobs as a start or a read would take it.
  absl::Status CheckSpecs() {
    Begin("spec_sha256");
    const std::string sql =
        absl::StrCat("SELECT ", kJobColumns, " FROM jobs WHERE arrival>? ORDER BY arrival LIMIT ",
                     kJobsPerPiece);
    int64_t last = 0, before = -1;
    while (last != before) {
      before = last;
      RETURN_IF_ERROR(Look([&](Database& database) {
        return database.Query(sql, {before}, [&](const Row& row) {
          last = row.Int(4);
          result_.set_jobs(result_.jobs() + 1);
          const absl::StatusOr<JobRecord> record = ReadJob(row);
          if (!record.ok()) Add("spec_sha256", row.Text(0), std::string(record.status().message()));
          return absl::OkStatus();
        });
      }));
    }
    return absl::OkStatus();
  }

  // Folders that `sql` names, as `verify` sees them; what has gone meanwhile is not missed.
  template <typename Verify>
  absl::Status CheckFolders(const char* check, const std::string& sql, const Verify& verify) {
    Begin(check);
    std::vector<NamedFolder> folders;
    const auto read = [&folders](const Row& row) {
      folders.push_back({row.Text(0), row.Text(1), row.Text(2)});
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(Look([&](Database& database) { return database.Query(sql, read); }));
    const std::vector<NamedFolder> named = std::exchange(folders, {});
    for (const NamedFolder& folder : named) {
      absl::Time begin = absl::Now();
      const absl::Status whole = verify(folder, [&](int64_t, int64_t) {
        RETURN_IF_ERROR(RestSince(begin));
        begin = absl::Now();
        return absl::OkStatus();
      });
      if (whole.ok()) continue;
      if (absl::IsCancelled(whole)) return whole;
      folders.clear();
      RETURN_IF_ERROR(Look([&](Database& database) {
        return database.Query(absl::StrCat("SELECT * FROM (", sql, ") AS t WHERE t.dir=?"),
                              {folder.dir}, read);
      }));
      if (!folders.empty()) Add(check, folder.job, std::string(whole.message()));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> Count(const char* sql) {
    int64_t count = 0;
    RETURN_IF_ERROR(Look([&](Database& database) {
      ASSIGN_OR_RETURN(count, database.QueryInt(sql));
      return absl::OkStatus();
    }));
    return count;
  }

  absl::Status CountEvents() {
    ASSIGN_OR_RETURN(const int64_t events, Count("SELECT count(*) FROM events"));
    result_.set_events(events);
    return absl::OkStatus();
  }

  v1::CheckStoreResponse Take() { return std::move(result_); }

 private:
  JobStore& store_;
  const Rest& rest_;
  v1::CheckStoreResponse result_;
};

absl::Status VerifyArtifact(const NamedFolder& output, const HashWatch& watch) {
  ASSIGN_OR_RETURN(const ArtifactRecord found, HashOutput(output.dir, watch));
  if (found.sha256 == output.sha256) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(output.dir, " is not what was published"));
}

}  // namespace

absl::StatusOr<v1::CheckStoreResponse> Examine(JobStore& store, const Rest& rest) {
  Examination examination(store, rest);
  ASSIGN_OR_RETURN(const int64_t jobs, examination.Count("SELECT jobs FROM counts"));
  const bool whole = rest == nullptr || jobs <= kMaxJobsAtOnce;
  if (whole) RETURN_IF_ERROR(examination.CheckPages());
  for (const Rule& rule : kRules)
    if (whole || !rule.large) RETURN_IF_ERROR(examination.Apply(rule));
  RETURN_IF_ERROR(examination.CheckSpecs());
  RETURN_IF_ERROR(examination.CheckFolders("outputs", "SELECT job, dir, sha256 FROM artifacts",
                                           VerifyArtifact));
  RETURN_IF_ERROR(examination.CheckFolders(
      "checkpoints",
      "SELECT c.job, c.dir AS dir, c.manifest_sha256 FROM checkpoints c JOIN jobs ON id=c.job "
      "WHERE c.state=1 AND jobs.state IN (1, 2, 3, 4, 5, 6, 7)",
      [](const NamedFolder& folder, const HashWatch& watch) {
        return VerifyCheckpoint(folder.job, folder.dir, watch).status();
      }));
  if (whole) RETURN_IF_ERROR(examination.CountEvents());
  return examination.Take();
}

}  // namespace snug::server
