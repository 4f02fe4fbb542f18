// Checks that are one statement of SQL each. The numbers are those of states (job.proto, states.h):
// of jobs 3, 4, 5 and 7 have an attempt, 8, 9 and 10 are ends; of attempts 6 is closed.
#include "proto/snug/status_macros.h"
#include "server/examine/examining.h"

namespace snug::server {
namespace {

// Rows that must not be: each gives what is wrong with what.
struct Rule {
  const char* name;
  Extent extent;    // The least with which it is applied.
  const char* sql;  // subject, message
};

constexpr Rule kRules[] = {
    {"foreign_keys", Extent::kAll,
     "SELECT \"table\", 'a row without its parent in ' || parent "
     "FROM pragma_foreign_key_check"},
    {"one_open_attempt", Extent::kLive,
     "SELECT job, count(*) || ' attempts are open' FROM attempts "
     "WHERE state<6 GROUP BY job HAVING count(*)>1"},
    {"open_attempt_of_a_job_without", Extent::kLive,
     "SELECT job, 'an attempt is open, and the job has none' FROM "
     "attempts JOIN jobs ON id=job WHERE attempts.state<6 AND "
     "jobs.state NOT IN (3, 4, 5, 7)"},
    {"attempt_of_a_job_with_one", Extent::kLive,
     "SELECT id, 'no attempt is open, and the job has one' FROM jobs "
     "WHERE state IN (3, 4, 5, 7) AND NOT EXISTS(SELECT 1 FROM "
     "attempts WHERE job=id AND state<6)"},
    {"open_attempt_is_the_last", Extent::kLive,
     "SELECT a.job, 'attempt ' || a.epoch || ' is open, and there is a later one' "
     "FROM attempts a WHERE a.state<6 AND EXISTS(SELECT 1 FROM attempts b "
     "WHERE b.job=a.job AND b.epoch>a.epoch)"},
    {"reservation_of_an_open_attempt", Extent::kLive,
     "SELECT job, 'bytes are promised to an attempt that is "
     "closed' FROM reservations r WHERE NOT EXISTS(SELECT 1 FROM "
     "attempts a WHERE a.job=r.job AND a.epoch=r.epoch AND "
     "a.state<6)"},
    {"one_request_of_a_job", Extent::kAll,
     "SELECT job, count(*) || ' requests have made it' FROM requests "
     "GROUP BY job HAVING count(*)>1"},
    {"dense_events", Extent::kAll,
     "SELECT 'events', 'of ' || max(seq) || ' there are ' || count(*) FROM events "
     "HAVING count(*)<>max(seq)"},
    {"last_event_is_the_state", Extent::kAll,
     "SELECT id, 'is in state ' || state || ', and its last event says ' || e.new "
     "FROM (SELECT max(seq) AS last FROM events GROUP BY job) JOIN events e ON e.seq=last "
     "JOIN jobs ON id=e.job WHERE e.new<>state"},
    // A deletion has no new state.
    {"nothing_after_the_end", Extent::kAll,
     "SELECT job, 'goes from state ' || old || ', which is an end, to ' || new FROM events "
     "WHERE old IN (8, 9, 10) AND new<>0 AND new<>old"},
    // A user may give a deleted job's id to another one.
    {"one_end", Extent::kAll,
     "SELECT job, 'has ended ' || sum(new<>0) || ' times' FROM events "
     "WHERE new IN (8, 9, 10) OR (old IN (8, 9, 10) AND new=0) "
     "GROUP BY job HAVING sum(CASE new WHEN 0 THEN -1 ELSE 1 END)>1"},
    {"count_of_jobs", Extent::kSmall,
     "SELECT 'jobs', 'there are ' || (SELECT count(*) FROM jobs) || ', counted as ' "
     "|| jobs FROM counts WHERE jobs<>(SELECT count(*) FROM jobs)"},
    {"output_of_a_success", Extent::kSmall,
     "SELECT id, 'has succeeded, and has no output' FROM jobs WHERE state=8 "
     "AND NOT EXISTS(SELECT 1 FROM artifacts WHERE job=id)"},
    {"output_of_an_end", Extent::kSmall,
     "SELECT job, 'has an output, and has not ended' FROM artifacts JOIN jobs ON id=job "
     "WHERE state NOT IN (8, 10)"},
    {"output_of_the_last_attempt", Extent::kSmall,
     "SELECT job, 'its output is of attempt ' || epoch || ', and the last one is ' || last FROM "
     "(SELECT job, epoch, coalesce((SELECT max(epoch) FROM attempts t WHERE t.job=a.job), 0) AS "
     "last FROM artifacts a) WHERE epoch<>last"},
};

}  // namespace

absl::Status CheckRows(Examining& examining, Extent extent) {
  for (const Rule& rule : kRules) {
    if (rule.extent > extent) continue;
    examining.Begin(rule.name);
    RETURN_IF_ERROR(examining.Look([&](Database& database) {
      return database.Query(rule.sql, [&](const Row& row) {
        examining.Add(rule.name, row.Text(0), row.Text(1));
        return absl::OkStatus();
      });
    }));
  }
  return absl::OkStatus();
}

}  // namespace snug::server
