#include "client/job_list.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/job_text.h"
#include "client/table.h"

namespace snug::client {
namespace {

constexpr int kBetween = 2;     // Spaces that Table puts between columns.
constexpr int kMinReason = 24;  // Characters that are worth a column.
// Where no terminal says how many there is room for. `snug get` has all of it.
constexpr size_t kMostReason = 200;

struct Column {
  std::string name;  // As Table takes it.
  int missed;        // The higher, the more; 0: always there.
  std::string (*cell)(const v1::Job& job, absl::Time now);
};

std::string StepText(const v1::Job& job, absl::Time) {
  const v1::Progress& progress = job.progress();
  if (progress.max_steps() == 0) return "";
  return absl::StrCat(progress.global_step(), "/", progress.max_steps());
}

std::string LossText(const v1::Job& job, absl::Time) {
  if (job.progress().global_step() == 0) return "";
  return absl::StrFormat("%.4f", job.progress().loss());
}

std::string AgeText(const v1::Job& job, absl::Time now) {
  if (!job.has_create_time()) return "";
  const absl::Time created = absl::FromUnixSeconds(job.create_time().seconds());
  return DurationText(std::max(absl::ZeroDuration(), now - created));
}

std::string LeftText(const v1::Job& job, absl::Time) {
  const absl::Duration left = TimeLeftOf(job);
  return left < absl::ZeroDuration() ? "" : DurationText(left);
}

// Why it waits or has failed, in one line.
std::string ReasonText(const v1::Job& job, absl::Time) {
  const std::string error = ErrorText(job.error());
  std::string text;
  for (const absl::string_view line :
       absl::StrSplit(error.empty() ? job.reason() : error, '\n', absl::SkipWhitespace())) {
    if (!text.empty()) absl::StrAppend(&text, absl::EndsWith(text, ":") ? " " : "; ");
    absl::StrAppend(&text, absl::StripAsciiWhitespace(line));
  }
  return OneLine(text);
}

std::vector<Column> AllColumns() {
  return {{"JOB", 0, [](const v1::Job& job, absl::Time) { return job.id(); }},
          {"NAME", 2, [](const v1::Job& job, absl::Time) { return job.display_name(); }},
          {"STATE", 0, [](const v1::Job& job, absl::Time) { return StateName(job.state()); }},
          {">STEP", 0, StepText},
          {">LOSS", 5, LossText},
          {">MEMORY", 3, [](const v1::Job& job, absl::Time) { return MemoryText(job.memory()); }},
          {"PLAN", 1, [](const v1::Job& job, absl::Time) { return job.memory().plan(); }},
          {"DEVICE", 4, [](const v1::Job& job, absl::Time) { return job.device(); }},
          {">AGE", 0, AgeText},
          {">LEFT", 0, LeftText},
          {"REASON", 0, ReasonText}};
}

std::string CellOf(const Column& column, const v1::Job& job, absl::Time now) {
  return Printable(column.cell(job, now));
}

int WidthOf(const Column& column, const std::vector<v1::Job>& jobs, absl::Time now) {
  size_t width = column.name.size() - (column.name.front() == '>' ? 1 : 0);
  for (const v1::Job& job : jobs) width = std::max(width, Width(CellOf(column, job, now)));
  return static_cast<int>(width);
}

// What the columns before the last leave for it.
int RoomForReason(const std::vector<Column>& columns, const std::vector<v1::Job>& jobs,
                  const ListOptions& options) {
  int room = options.columns;
  for (size_t i = 0; i + 1 < columns.size(); ++i)
    room -= WidthOf(columns[i], jobs, options.now) + kBetween;
  return room;
}

// The first of those that can be missed most; end: all are needed.
std::vector<Column>::iterator LeastNeeded(std::vector<Column>& columns) {
  auto least = columns.end();
  for (auto it = columns.begin(); it != columns.end(); ++it)
    if (it->missed > 0 && (least == columns.end() || it->missed < least->missed)) least = it;
  return least;
}

// tenants/TENANT/jobs/ID
std::string TenantIn(const v1::Job& job) {
  const std::vector<std::string> parts = absl::StrSplit(job.name(), '/');
  return parts.size() == 4 ? parts[1] : "";
}

// Among jobs of several tenants ids are spelled ID.TENANT, which every command takes.
std::vector<v1::Job> WithTenants(std::vector<v1::Job> jobs) {
  std::set<std::string> tenants;
  for (const v1::Job& job : jobs) tenants.insert(TenantIn(job));
  if (tenants.size() < 2) return jobs;
  for (v1::Job& job : jobs)
    if (const std::string tenant = TenantIn(job); !tenant.empty())
      job.set_id(absl::StrCat(job.id(), ".", tenant));
  return jobs;
}

}  // namespace

absl::Duration TimeLeftOf(const v1::Job& job) {
  const v1::Progress& progress = job.progress();
  const int64_t steps = progress.max_steps() - progress.global_step();
  const double corrected = job.step_time().corrected_seconds();
  const double seconds = corrected > 0 ? corrected : progress.step_seconds();
  const bool known = job.state() == v1::Job::STATE_RUNNING && seconds > 0 && steps >= 0;
  return known ? absl::Seconds(seconds) * steps : absl::Seconds(-1);
}

void PrintJobs(const std::vector<v1::Job>& all, const ListOptions& options, std::ostream& out) {
  const std::vector<v1::Job> jobs = WithTenants(all);
  std::vector<Column> columns = AllColumns();
  size_t room = kMostReason;
  if (options.columns > 0) {
    const int wanted = std::min(kMinReason, WidthOf(columns.back(), jobs, options.now));
    for (auto least = LeastNeeded(columns);
         least != columns.end() && RoomForReason(columns, jobs, options) < wanted;
         least = LeastNeeded(columns))
      columns.erase(least);
    room = static_cast<size_t>(std::max(0, RoomForReason(columns, jobs, options)));
  }
  std::vector<std::string> header;
  for (const Column& column : columns) header.push_back(column.name);
  if (room < header.back().size())
    header.back() = Clipped(header.back(), std::max<size_t>(room, 1));
  Table table(header);
  for (const v1::Job& job : jobs) {
    std::vector<std::string> cells;
    for (const Column& column : columns) cells.push_back(CellOf(column, job, options.now));
    cells.back() = Shortened(cells.back(), room);
    table.AddRow(std::move(cells));
  }
  table.Print(out);
}

}  // namespace snug::client
