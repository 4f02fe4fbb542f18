#include "server/sim/read_trace.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "proto/snug/status_macros.h"

namespace snug::server::sim {
namespace {

using Json = nlohmann::json;
using Row = std::vector<std::string>;

const Row& PaiColumns() {
  static const auto* const columns =
      new Row{"job_name", "task_name", "inst_num", "status",   "start_time",
              "end_time", "plan_cpu",  "plan_mem", "plan_gpu", "gpu_type"};
  return *columns;
}

// "2017-10-07 01:12:09", in whatever zone: only differences count.
std::optional<double> SecondsOf(const std::string& text) {
  absl::Time time;
  std::string error;
  if (!absl::ParseTime("%Y-%m-%d %H:%M:%S", text, &time, &error)) return std::nullopt;
  return absl::ToDoubleSeconds(time - absl::UnixEpoch());
}

std::optional<double> NumberOf(const std::string& text) {
  double number = 0.0;
  if (!absl::SimpleAtod(text, &number) || !std::isfinite(number)) return std::nullopt;
  return number;
}

// Left out where it has no times, or ended before it began.
void Add(std::string id, std::optional<double> from_s, std::optional<double> runs_s,
         double utilisation, Trace& trace) {
  if (!from_s || !runs_s || *runs_s <= 0.0 || std::abs(*from_s) > 1e12 || *runs_s > 1e9) {
    ++trace.left_out;
    return;
  }
  trace.arrivals.push_back({.id = std::move(id),
                            .arrives_us = std::llround(*from_s * 1e6),
                            .work_us = std::max<int64_t>(1, std::llround(*runs_s * 1e6)),
                            .utilisation = utilisation});
}

std::string TextOf(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// Of all attempts that have both times; nothing where none has.
std::optional<double> RunTimeOf(const Json& attempts) {
  double sum = 0.0;
  for (const Json& attempt : attempts) {
    if (!attempt.is_object()) return std::nullopt;
    const auto from = SecondsOf(TextOf(attempt, "start_time"));
    const auto to = SecondsOf(TextOf(attempt, "end_time"));
    if (from && to) sum += std::max(0.0, *to - *from);
  }
  return sum > 0.0 ? std::optional(sum) : std::nullopt;
}

bool HasGpu(const Json& attempts) {
  for (const Json& attempt : attempts)
    for (const Json& machine : attempt.value("detail", Json::array()))
      if (machine.is_object() && !machine.value("gpus", Json::array()).empty()) return true;
  return false;
}

absl::StatusOr<Trace> ParsePhilly(const std::string& text) {
  const Json jobs = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!jobs.is_array()) return absl::InvalidArgumentError("philly: not a JSON list of jobs");
  Trace trace{.format = "philly"};
  for (size_t i = 0; i < jobs.size(); ++i) {
    const std::string id = jobs[i].is_object() ? TextOf(jobs[i], "jobid") : "";
    if (id.empty() || !jobs[i].contains("attempts") || !jobs[i]["attempts"].is_array())
      return absl::InvalidArgumentError(
          absl::StrCat("philly: job ", i + 1, " has no jobid or no list of attempts"));
    const Json& attempts = jobs[i]["attempts"];
    const auto runs_s = RunTimeOf(attempts);
    const bool runs = runs_s && HasGpu(attempts);
    Add(id, SecondsOf(TextOf(jobs[i], "submitted_time")), runs ? runs_s : std::nullopt, 0.0, trace);
  }
  return trace;
}

// By column, whatever their order; lines that are empty are none.
absl::StatusOr<std::vector<std::map<std::string, std::string>>> ParseCsv(const std::string& text,
                                                                         Row columns) {
  std::vector<std::map<std::string, std::string>> rows;
  int64_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const absl::string_view stripped = absl::StripAsciiWhitespace(line);
    if (stripped.empty()) continue;
    Row cells = absl::StrSplit(stripped, ',');
    for (std::string& cell : cells) absl::StripAsciiWhitespace(&cell);
    if (columns.empty()) {
      columns = std::move(cells);
      continue;
    }
    if (cells == columns) continue;  // A header, where the format has none.
    if (cells.size() != columns.size())
      return absl::InvalidArgumentError(absl::StrCat("line ", number, " has ", cells.size(),
                                                     " cells; there are ", columns.size(),
                                                     " columns: ", absl::StrJoin(columns, ",")));
    auto& row = rows.emplace_back();
    for (size_t i = 0; i < columns.size(); ++i) row[columns[i]] = std::move(cells[i]);
  }
  return rows;
}

absl::StatusOr<Trace> ParseHelios(const std::string& text) {
  ASSIGN_OR_RETURN(auto rows, ParseCsv(text, {}));
  Trace trace{.format = "helios"};
  for (auto& row : rows) {
    for (const char* column : {"job_id", "gpu_num", "submit_time", "duration"})
      if (!row.contains(column))
        return absl::InvalidArgumentError(absl::StrCat("helios: there is no column ", column));
    const bool has_gpu = NumberOf(row["gpu_num"]).value_or(0.0) > 0.0;
    Add(row["job_id"], SecondsOf(row["submit_time"]),
        has_gpu ? NumberOf(row["duration"]) : std::nullopt, 0.0, trace);
  }
  return trace;
}

absl::StatusOr<Trace> ParsePai(const std::string& text) {
  ASSIGN_OR_RETURN(auto rows, ParseCsv(text, PaiColumns()));
  Trace trace{.format = "pai"};
  for (auto& row : rows) {
    const auto from = NumberOf(row["start_time"]), to = NumberOf(row["end_time"]);
    const double percent = NumberOf(row["plan_gpu"]).value_or(0.0);
    std::optional<double> runs_s;
    if (from && to && percent > 0.0) runs_s.emplace(*to - *from);
    Add(absl::StrCat(row["job_name"], "/", row["task_name"]), from, runs_s,
        percent < 100.0 ? percent / 100.0 : 0.0, trace);
  }
  return trace;
}

absl::Status CheckIds(const Trace& trace) {
  std::map<std::string, int> seen;
  for (const Arrival& each : trace.arrivals)
    if (++seen[each.id] > 1)
      return absl::InvalidArgumentError(absl::StrCat("job ", each.id, " is there twice"));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Trace> ParseTrace(const std::string& text) {
  const absl::string_view begin = absl::StripLeadingAsciiWhitespace(text);
  const absl::string_view first_line = begin.substr(0, begin.find('\n'));
  absl::StatusOr<Trace> trace;
  if (absl::StartsWith(begin, "["))
    trace = ParsePhilly(text);
  else if (absl::StrContains(first_line, "submit_time"))
    trace = ParseHelios(text);
  else
    trace = ParsePai(text);
  RETURN_IF_ERROR(trace.status());
  RETURN_IF_ERROR(CheckIds(*trace));
  if (trace->arrivals.empty())
    return absl::InvalidArgumentError("there is no job with a GPU, a time of arrival and a length");
  return trace;
}

absl::StatusOr<Trace> ReadTrace(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  return ParseTrace(text.str());
}

}  // namespace snug::server::sim
