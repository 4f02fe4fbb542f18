#include "server/job/store_reads.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"
#include "server/job/job_key.h"
#include "server/job/store_rows.h"

namespace snug::server {
namespace {

// A page looks at the jobs of so many arrivals at a time, and at no more of them after so long:
// then it is given as it is, and the next one goes on. Submits wait meanwhile.
constexpr int64_t kWindow = 2'000;
constexpr int kMostFound = 1000;  // Of jobs whose ids begin alike, as many as are worth counting.
constexpr absl::Duration kLongestPage = absl::Milliseconds(20);

struct Filter {
  std::string where;
  std::vector<SqlValue> values;
};

Filter FilterOf(const JobQuery& query) {
  Filter filter{.where = "arrival>=? AND arrival<=?", .values = {int64_t{0}, int64_t{0}}};
  const auto add = [&](const std::string& condition, std::vector<SqlValue> values) {
    absl::StrAppend(&filter.where, " AND ", condition);
    for (SqlValue& value : values) filter.values.push_back(std::move(value));
  };
  if (!query.states.empty()) {
    std::vector<SqlValue> states;
    for (const JobState state : query.states)
      states.emplace_back(std::in_place_type<int64_t>, state);
    const std::vector<std::string> marks(states.size(), "?");
    add(absl::StrCat("state IN (", absl::StrJoin(marks, ","), ")"), std::move(states));
  }
  if (!query.owner.empty()) add("owner=?", {query.owner});
  if (!query.display_name.empty()) add("display_name=?", {query.display_name});
  if (query.created_from_us > 0) add("created_us>=?", {query.created_from_us});
  if (query.created_until_us < INT64_MAX) add("created_us<?", {query.created_until_us});
  for (const auto& [key, value] : query.labels)
    add("EXISTS(SELECT 1 FROM labels WHERE job=id AND key=? AND value=?)", {key, value});
  return filter;
}

absl::StatusOr<ListedJob> ReadListed(const Row& row, bool whole) {
  if (whole) {
    ASSIGN_OR_RETURN(JobRecord record, ReadJob(row));
    return ListedJob{record.order, std::make_shared<const v1::Job>(std::move(record.job))};
  }
  auto job = std::make_shared<v1::Job>();
  if (!job->ParseFromString(row.Bytes(1)))
    return absl::DataLossError(
        absl::StrCat("the store's row of job ", row.Text(0), " does not parse"));
  return ListedJob{row.Int(2), std::move(job)};
}

}  // namespace

absl::StatusOr<JobRecord> SelectJob(Database& database, const std::string& key) {
  absl::StatusOr<JobRecord> record = JobNotFound(IdIn(key));
  RETURN_IF_ERROR(database.Query(absl::StrCat("SELECT ", kJobColumns, " FROM jobs WHERE id=?"),
                                 {key}, [&](const Row& row) {
                                   record = ReadJob(row);
                                   return absl::OkStatus();
                                 }));
  return record;
}

absl::StatusOr<JobRecord> SearchJob(Database& database, absl::string_view text,
                                    const Principal& who) {
  const char* of_whom =
      who.SeesAll() ? "jobs WHERE" : "jobs INDEXED BY jobs_by_owner WHERE owner=?3 AND";
  JobSearch search(text, TenantOf(who.name()));
  const auto consider = [&](const Row& row) {
    search.Consider(row.Text(0), row.Text(1));
    return absl::OkStatus();
  };
  const auto look = [&](std::string from, std::string to) {  // Keys of [from, to).
    std::vector<SqlValue> values = {std::move(from), std::move(to)};
    if (!who.SeesAll()) values.emplace_back(who.name());
    return database.Query(
        absl::StrCat("SELECT id, tenant FROM ", of_whom, " id>=?1 AND id<?2 LIMIT ", kMostFound),
        values, consider);
  };
  // Keys of jobs of that id are it, or it and a dot, behind which in the alphabet is a slash; '\1'
  // is before all that a key is made of, '\x7f' behind it.
  RETURN_IF_ERROR(look(std::string(text), absl::StrCat(text, "\1")));
  RETURN_IF_ERROR(look(absl::StrCat(text, "."), absl::StrCat(text, "/")));
  if (!search.any_whole()) RETURN_IF_ERROR(look(std::string(text), absl::StrCat(text, "\x7f")));
  ASSIGN_OR_RETURN(const std::string key, search.Found());
  return SelectJob(database, key);
}

absl::StatusOr<JobPage> SelectPage(Database& database, const JobQuery& query) {
  const absl::Time end = absl::Now() + kLongestPage;
  ASSIGN_OR_RETURN(const int64_t last, database.QueryInt("SELECT max(arrival) FROM jobs"));
  Filter filter = FilterOf(query);
  const std::string sql = absl::StrCat("SELECT ", query.whole ? kJobColumns : "id, view, arrival",
                                       " FROM jobs WHERE ", filter.where, " ORDER BY arrival",
                                       query.newest_first ? " DESC" : "", " LIMIT ?");
  filter.values.emplace_back(std::in_place_type<int64_t>, static_cast<int64_t>(query.limit) + 1);
  JobPage page;
  // What is still to be looked at, both ends included.
  int64_t low = query.newest_first ? 0 : query.after + 1;
  int64_t high = query.newest_first && query.after > 0 ? query.after - 1 : last;
  while (low <= high) {
    const int64_t from = query.newest_first ? std::max(low, high - kWindow + 1) : low;
    const int64_t to = query.newest_first ? high : std::min(high, low + kWindow - 1);
    filter.values[0] = from;
    filter.values[1] = to;
    RETURN_IF_ERROR(database.Query(sql, filter.values, [&](const Row& row) {
      if (page.jobs.size() > query.limit) return absl::OkStatus();
      ASSIGN_OR_RETURN(ListedJob job, ReadListed(row, query.whole));
      page.jobs.push_back(std::move(job));
      return absl::OkStatus();
    }));
    if (page.jobs.size() > query.limit) {
      page.jobs.pop_back();
      page.next = page.jobs.back().order;
      return page;
    }
    (query.newest_first ? high : low) = query.newest_first ? from - 1 : to + 1;
    if (low <= high && absl::Now() >= end) {
      page.next = query.newest_first ? from : to;
      return page;
    }
  }
  return page;
}

}  // namespace snug::server
