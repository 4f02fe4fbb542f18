#include "server/job/store_checks.h"

#include <sys/stat.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/job/store_rows.h"

namespace snug::server {
namespace {

constexpr int kMaxFindings = 1000;
constexpr int64_t kJobsPerPiece = 500;  // 2 ms: their specs are hashed.

// Rows that must not be: each gives what is wrong with what.
struct Rule {
  const char* name;
  const char* sql;  // subject, message
};

constexpr Rule kRules[] = {
    {"foreign_keys",
     "SELECT \"table\", 'a row without its parent in ' || parent "
     "FROM pragma_foreign_key_check"},
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
     "HAVING count(*)<>max(seq)"},
    {"last_event_is_the_state",
     "SELECT id, 'is in state ' || state || ', and its last event says ' || e.new "
     "FROM (SELECT max(seq) AS last FROM events GROUP BY job) JOIN events e ON e.seq=last "
     "JOIN jobs ON id=e.job WHERE e.new<>state"},
    {"count_of_jobs",
     "SELECT 'jobs', 'there are ' || (SELECT count(*) FROM jobs) || ', counted as ' "
     "|| jobs FROM counts WHERE jobs<>(SELECT count(*) FROM jobs)"},
    {"output_of_a_success",
     "SELECT id, 'has succeeded, and has no output' FROM jobs WHERE state=8 "
     "AND NOT EXISTS(SELECT 1 FROM artifacts WHERE job=id)"},
};

class Examination {
 public:
  explicit Examination(JobStore& store) : store_(store) {}

  void Add(const char* check, std::string subject, std::string message) {
    if (result_.findings_size() == kMaxFindings) return;
    v1::CheckStoreResponse::Finding& finding = *result_.add_findings();
    finding.set_check(check);
    finding.set_subject(std::move(subject));
    finding.set_message(std::move(message));
  }

  absl::Status Begin(const char* check) {
    result_.add_checks(check);
    return absl::OkStatus();
  }

  absl::Status Apply(const Rule& rule) {
    RETURN_IF_ERROR(Begin(rule.name));
    return store_.Read([&](Database& database) {
      return database.Query(rule.sql, [&](const Row& row) {
        Add(rule.name, row.Text(0), row.Text(1));
        return absl::OkStatus();
      });
    });
  }

  // Pages of the file against one another.
  absl::Status CheckPages() {
    RETURN_IF_ERROR(Begin("pages"));
    return store_.Read([&](Database& database) {
      return database.Query("PRAGMA quick_check(20)", [&](const Row& row) {
        if (row.Text(0) != "ok") Add("pages", "snug.db", row.Text(0));
        return absl::OkStatus();
      });
    });
  }

  // Every row of jobs as a start or a read would take it.
  absl::Status CheckSpecs() {
    RETURN_IF_ERROR(Begin("spec_sha256"));
    const std::string sql =
        absl::StrCat("SELECT ", kJobColumns, " FROM jobs WHERE arrival>? ORDER BY arrival LIMIT ",
                     kJobsPerPiece);
    int64_t last = 0, before = -1;
    while (last != before) {
      before = last;
      RETURN_IF_ERROR(store_.Read([&](Database& database) {
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

  // Folders that rows name.
  absl::Status CheckFolders(const char* check, const char* sql) {
    RETURN_IF_ERROR(Begin(check));
    std::vector<std::pair<std::string, std::string>> folders;
    RETURN_IF_ERROR(store_.Read([&](Database& database) {
      return database.Query(sql, [&](const Row& row) {
        folders.emplace_back(row.Text(0), row.Text(1));
        return absl::OkStatus();
      });
    }));
    for (const auto& [job, folder] : folders) {
      struct stat file {};
      if (stat(folder.c_str(), &file) != 0) Add(check, job, absl::StrCat(folder, " is missing"));
    }
    return absl::OkStatus();
  }

  absl::Status CountEvents() {
    return store_.Read([&](Database& database) {
      ASSIGN_OR_RETURN(const int64_t events, database.QueryInt("SELECT count(*) FROM events"));
      result_.set_events(events);
      return absl::OkStatus();
    });
  }

  v1::CheckStoreResponse Take() { return std::move(result_); }

 private:
  JobStore& store_;
  v1::CheckStoreResponse result_;
};

}  // namespace

absl::StatusOr<v1::CheckStoreResponse> Examine(JobStore& store) {
  Examination examination(store);
  RETURN_IF_ERROR(examination.CheckPages());
  for (const Rule& rule : kRules) RETURN_IF_ERROR(examination.Apply(rule));
  RETURN_IF_ERROR(examination.CheckSpecs());
  RETURN_IF_ERROR(examination.CheckFolders("outputs", "SELECT job, dir FROM artifacts"));
  RETURN_IF_ERROR(
      examination.CheckFolders("checkpoints",
                               "SELECT c.job, c.dir FROM checkpoints c JOIN jobs ON id=c.job "
                               "WHERE c.state=1 AND jobs.state IN (1, 2, 3, 4, 5, 6, 7)"));
  RETURN_IF_ERROR(examination.CountEvents());
  return examination.Take();
}

}  // namespace snug::server
