// What the rows say against one another. The numbers are those of states (job.proto, states.h): of
// jobs 3, 4, 5 and 7 have an attempt, 8, 9 and 10 are ends; of attempts 6 is closed.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/examine/examining.h"
#include "server/job/states.h"

namespace snug::server {
namespace {

// Rows that must not be, about jobs that have not ended: each reads little, by an index of these.
struct LiveRule {
  const char* name;
  const char* sql;  // subject, message
};

constexpr LiveRule kLiveRules[] = {
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
    {"open_attempt_is_the_last",
     "SELECT a.job, 'attempt ' || a.epoch || ' is open, and there is a later one' "
     "FROM attempts a WHERE a.state<6 AND EXISTS(SELECT 1 FROM attempts b "
     "WHERE b.job=a.job AND b.epoch>a.epoch)"},
    {"reservation_of_an_open_attempt",
     "SELECT job, 'bytes are promised to an attempt that is "
     "closed' FROM reservations r WHERE NOT EXISTS(SELECT 1 FROM "
     "attempts a WHERE a.job=r.job AND a.epoch=r.epoch AND "
     "a.state<6)"},
};

// Likewise, about all jobs.
struct Rule {
  const char* name;
  const char* table;
  const char* column;  // By which the table is read in parts.
  const char* sql;     // subject, message; ?1 and ?2 are a part's ends.
};

constexpr Rule kRules[] = {
    {"one_job_of_a_request", "jobs", "arrival",
     "SELECT id, 'its request had made ' || (SELECT id FROM jobs b WHERE "
     "b.request_id=a.request_id AND b.arrival<a.arrival AND b.request_expires_us>=a.created_us) "
     "AS other FROM jobs a WHERE arrival BETWEEN ?1 AND ?2 AND other IS NOT NULL"},
    {"output_of_a_success", "jobs", "arrival",
     "SELECT id, 'has succeeded, and has no output' FROM jobs WHERE arrival BETWEEN ?1 AND ?2 "
     "AND state=8 AND NOT EXISTS(SELECT 1 FROM artifacts WHERE job=id)"},
    {"output_of_an_end", "artifacts", "job",
     "SELECT job, 'has an output, and has not ended' FROM artifacts JOIN jobs ON id=job "
     "WHERE job BETWEEN ?1 AND ?2 AND state NOT IN (8, 10)"},
    {"output_of_the_last_attempt", "artifacts", "job",
     "SELECT job, 'its output is of attempt ' || epoch || ', and the last one is ' || last FROM "
     "(SELECT job, epoch, coalesce((SELECT max(epoch) FROM attempts t WHERE t.job=a.job), 0) AS "
     "last FROM artifacts a WHERE job BETWEEN ?1 AND ?2) WHERE epoch<>last"},
};

// Adds what the rows of a statement say: subject, message.
RangeLook FindingsOf(Examining& examining, const char* check, std::string sql) {
  return [&examining, check, sql = std::move(sql)](Database& database, const Range& range) {
    return database.Query(sql, range, [&](const Row& row) {
      examining.Add(check, row.Text(0), row.Text(1));
      return absl::OkStatus();
    });
  };
}

constexpr const char* kReferences = "foreign_keys";

// A column that names rows of another table.
struct Reference {
  Column from, to;
};

absl::StatusOr<std::vector<Reference>> ReferencesOf(Examining& examining) {
  std::vector<Reference> references;
  RETURN_IF_ERROR(examining.Look([&](Database& database) {
    return database.Query(
        "SELECT m.name, f.\"from\", f.\"table\", f.\"to\" "
        "FROM sqlite_master m JOIN pragma_foreign_key_list(m.name) f WHERE m.type='table'",
        [&](const Row& row) {
          references.push_back({{row.Text(0), row.Text(1)}, {row.Text(2), row.Text(3)}});
          return absl::OkStatus();
        });
  }));
  return references;
}

// The jobs' lives, as the events tell them in their order. No index leads from a job to its events,
// so all events are read once and what they have come to is kept: some 40 bytes of each job that
// has not been deleted. Jobs are known by hashes of their ids: that two of a million have the same
// one, which would be a false finding, has a chance of 3e-8.
class Histories {
 public:
  explicit Histories(Examining& examining) : examining_(examining) {}

  absl::Status Read(Database& database, const Range& events) {
    return database.Query(
        "SELECT seq, job, old, new FROM events WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq", events,
        [this](const Row& row) {
          TakeNumber(row.Int(0));
          TakeMove(row.Text(1), static_cast<JobState>(row.Int(2)),
                   static_cast<JobState>(row.Int(3)));
          return absl::OkStatus();
        });
  }

  // The jobs of these arrivals, after the events that have come meanwhile. All arrivals are
  // compared, in their order, in which they are committed, too.
  absl::Status Compare(Database& database, const Range& arrivals) {
    RETURN_IF_ERROR(Read(database, {last_ + 1, int64_t{INT64_MAX}}));
    ASSIGN_OR_RETURN(counted_, database.QueryInt("SELECT jobs FROM counts"));
    return database.Query("SELECT id, state FROM jobs WHERE arrival BETWEEN ?1 AND ?2", arrivals,
                          [this](const Row& row) {
                            CompareState(row.Text(0), row.Int(1));
                            return absl::OkStatus();
                          });
  }

  // When all have been compared: as it was at the last of them.
  void Finish() {
    examining_.result().set_events(events_);
    if (counted_ < 0) return;  // There is no job.
    const int64_t jobs = static_cast<int64_t>(lives_.size());
    if (jobs != counted_)
      examining_.Add("count_of_jobs", "jobs",
                     absl::StrCat("there are ", jobs, ", counted as ", counted_));
    const int64_t lost = std::count_if(lives_.begin(), lives_.end(),
                                       [](const auto& life) { return !life.second.row; });
    if (lost > 0)
      examining_.Add("row_of_each_job", "jobs",
                     absl::StrCat(lost, " have events, and have no row"));
  }

 private:
  struct Life {
    JobState state = v1::Job::STATE_UNSPECIFIED;
    int16_t ends = 0;
    bool row = false;  // Its job has one.
  };

  void TakeNumber(int64_t seq) {
    if (seq != last_ + 1)
      examining_.Add("dense_events", "events", absl::StrCat("number ", seq, " follows ", last_));
    last_ = seq;
    ++events_;
  }

  void TakeMove(const std::string& job, JobState from, JobState to) {
    if (IsTerminal(from) && to != v1::Job::STATE_UNSPECIFIED && to != from)
      examining_.Add("nothing_after_the_end", job,
                     absl::StrCat("goes from state ", from, ", which is an end, to ", to));
    // A deletion has no new state. A user may give a deleted job's id to another one.
    if (to == v1::Job::STATE_UNSPECIFIED) {
      lives_.erase(hash_(job));
      return;
    }
    Life& life = lives_[hash_(job)];
    life.state = to;
    if (IsTerminal(to) && ++life.ends == 2) examining_.Add("one_end", job, "has ended twice");
  }

  void CompareState(const std::string& job, int64_t state) {
    const auto found = lives_.find(hash_(job));
    const bool told = found != lives_.end();
    if (told) found->second.row = true;
    const JobState last = told ? found->second.state : v1::Job::STATE_UNSPECIFIED;
    if (last != state)
      examining_.Add("last_event_is_the_state", job,
                     absl::StrCat("is in state ", state, ", and its last event says ", last));
  }

  Examining& examining_;
  int64_t last_ = 0;
  int64_t events_ = 0;
  int64_t counted_ = -1;
  std::unordered_map<size_t, Life> lives_;
  std::hash<std::string> hash_;
};

}  // namespace

absl::Status CheckLiveRows(Examining& examining) {
  for (const LiveRule& rule : kLiveRules) {
    examining.Begin(rule.name);
    const RangeLook look = FindingsOf(examining, rule.name, rule.sql);
    RETURN_IF_ERROR(examining.NoteDamage(
        examining.Look([&](Database& database) { return look(database, {}); })));
  }
  return absl::OkStatus();
}

absl::Status CheckRows(Examining& examining) {
  for (const Rule& rule : kRules) {
    examining.Begin(rule.name);
    RETURN_IF_ERROR(examining.NoteDamage(examining.LookThrough(
        {rule.table, rule.column}, FindingsOf(examining, rule.name, rule.sql))));
  }
  return absl::OkStatus();
}

// As PRAGMA foreign_key_check, which reads whole tables at once.
absl::Status CheckReferences(Examining& examining) {
  examining.Begin(kReferences);
  ASSIGN_OR_RETURN(const std::vector<Reference> references, ReferencesOf(examining));
  for (const auto& [from, to] : references) {
    const std::string sql = absl::StrCat(
        "SELECT '", from.table, "', ", from.name, " || ' has no row in ", to.table, "' FROM ",
        from.table, " WHERE ", from.name, " BETWEEN ?1 AND ?2 AND NOT EXISTS(SELECT 1 FROM ",
        to.table, " WHERE ", to.table, ".", to.name, "=", from.table, ".", from.name, ")");
    RETURN_IF_ERROR(
        examining.NoteDamage(examining.LookThrough(from, FindingsOf(examining, kReferences, sql))));
  }
  return absl::OkStatus();
}

absl::Status CheckHistories(Examining& examining) {
  for (const char* check : {"dense_events", "nothing_after_the_end", "one_end", "count_of_jobs",
                            "row_of_each_job", "last_event_is_the_state"})
    examining.Begin(check);
  Histories histories(examining);
  RETURN_IF_ERROR(examining.LookThrough(
      {"events", "seq"},
      [&](Database& database, const Range& range) { return histories.Read(database, range); }));
  RETURN_IF_ERROR(examining.LookThrough(
      {"jobs", "arrival"},
      [&](Database& database, const Range& range) { return histories.Compare(database, range); }));
  histories.Finish();
  return absl::OkStatus();
}

}  // namespace snug::server
