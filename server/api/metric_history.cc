#include "server/api/metric_history.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"
#include "server/job/job_key.h"
#include "server/node/attempt_files.h"
#include "server/node/json_file.h"

namespace snug::server {
namespace {

constexpr int kDefaultPoints = 1000;
constexpr int kMostPoints = 10000;
constexpr off_t kTailBytes = 64 << 10;  // Longer than any line.
constexpr program::JsonLimits kLineLimits = {.bytes = kTailBytes, .values = 10'000, .depth = 4};
constexpr const char* kStep = "global_step";
constexpr const char* kTime = "time";
constexpr absl::string_view kEvaluation = "eval_";

using File = std::unique_ptr<FILE, decltype(&fclose)>;

// The next whole line, of at most kTailBytes; false: there is none yet.
absl::StatusOr<bool> NextLine(FILE* file, std::string& line) {
  line.clear();
  for (int c = 0; (c = getc_unlocked(file)) != EOF;) {
    if (c == '\n') return true;
    if (line.size() == kTailBytes)
      return absl::DataLossError(
          absl::StrCat("metrics.jsonl has a line of more than ", kTailBytes, " bytes"));
    line += static_cast<char>(c);
  }
  return false;  // It is being written.
}

int64_t PointsOf(const v1::GetMetricHistoryRequest& request) {
  return request.max_points() == 0 ? kDefaultPoints : request.max_points();
}

absl::Status Check(const v1::GetMetricHistoryRequest& request) {
  std::vector<Violation> found;
  if (request.max_points() < 0 || request.max_points() > kMostPoints)
    found.push_back(
        {"max_points",
         absl::StrCat(request.max_points(), ": 0 for the default, at most ", kMostPoints),
         "BAD_FIELD"});
  if (request.after_step() < 0)
    found.push_back(
        {"after_step", absl::StrCat(request.after_step(), ": steps count from 1"), "BAD_FIELD"});
  return found.empty() ? absl::OkStatus() : InvalidRequest(found);
}

absl::StatusOr<nlohmann::json> ParseLine(absl::string_view line) {
  ASSIGN_OR_RETURN(nlohmann::json json, JsonOfText(line, "metrics.jsonl", kLineLimits));
  if (!json.is_object() || !json.contains(kStep) || !json[kStep].is_number_integer())
    return absl::DataLossError(absl::StrCat("no line of metrics: ", line.substr(0, 80)));
  return json;
}

// Of the file's last whole line; 0: it has none.
absl::StatusOr<int64_t> LastStep(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return absl::ErrnoToStatus(errno, "cannot look at metrics.jsonl");
  if (!S_ISREG(status.st_mode)) return absl::DataLossError("metrics.jsonl is no file");
  std::string tail(static_cast<size_t>(std::min<off_t>(status.st_size, kTailBytes)), '\0');
  const ssize_t got =
      pread(fd, tail.data(), tail.size(), status.st_size - static_cast<off_t>(tail.size()));
  if (got < 0) return absl::ErrnoToStatus(errno, "cannot read metrics.jsonl");
  absl::string_view lines = absl::string_view(tail).substr(0, static_cast<size_t>(got));
  const size_t end = lines.rfind('\n');
  if (end == absl::string_view::npos) return 0;
  lines = lines.substr(0, end);
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseLine(lines.substr(lines.rfind('\n') + 1)));
  return json[kStep].get<int64_t>();
}

}  // namespace

MetricHistory::MetricHistory(const v1::GetMetricHistoryRequest& request, int64_t last_step)
    : wanted_(request.metrics().begin(), request.metrics().end()),
      after_step_(request.after_step()),
      last_step_(last_step),
      stretch_steps_(std::max<int64_t>(
          1, (last_step - after_step_ + PointsOf(request) - 1) / PointsOf(request))) {}

absl::Status MetricHistory::Add(absl::string_view line) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseLine(line));
  const int64_t step = json[kStep].get<int64_t>();
  if (step <= after_step_ || step > last_step_) return absl::OkStatus();
  const auto time = json.find(kTime);
  for (const auto& [name, value] : json.items()) {
    if (!value.is_number() || name == kStep || name == kTime) continue;
    if (!wanted_.empty() && wanted_.count(name) == 0) continue;
    Stretch& stretch = series_[name][(step - after_step_ - 1) / stretch_steps_];
    stretch.last_step = step;
    stretch.sum += value.get<double>();
    ++stretch.count;
    if (time != json.end() && time->is_number()) stretch.unix_seconds = time->get<double>();
  }
  return absl::OkStatus();
}

v1::GetMetricHistoryResponse MetricHistory::Response() const {
  v1::GetMetricHistoryResponse response;
  response.set_last_step(std::max(last_step_, after_step_));
  for (const bool evaluations : {false, true})
    for (const auto& [name, series] : series_) {
      if (absl::StartsWith(name, kEvaluation) != evaluations) continue;
      v1::MetricSeries& shown = *response.add_series();
      shown.set_name(name);
      for (const auto& [number, stretch] : series) {
        shown.add_steps(stretch.last_step);
        shown.add_values(stretch.sum / static_cast<double>(stretch.count));
        shown.add_unix_seconds(stretch.unix_seconds);
      }
    }
  return response;
}

absl::StatusOr<v1::GetMetricHistoryResponse> MetricHistoryOf(
    const JobIndex& index, const std::string& state_dir,
    const v1::GetMetricHistoryRequest& request) {
  RETURN_IF_ERROR(Check(request));
  ASSIGN_OR_RETURN(const JobPtr job, index.Find(request.id()));
  const std::string path =
      AttemptDir(state_dir, KeyOf(*job), std::max(job->epoch(), 1)) + "/metrics.jsonl";
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (fd < 0 && errno == ENOENT) return MetricHistory(request, 0).Response();
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot open the job's metrics.jsonl");
  const File file(fdopen(fd, "r"), fclose);
  ASSIGN_OR_RETURN(const int64_t last_step, LastStep(fd));
  MetricHistory history(request, last_step);
  std::string line;
  while (true) {
    ASSIGN_OR_RETURN(const bool whole, NextLine(file.get(), line));
    if (!whole) return history.Response();
    RETURN_IF_ERROR(history.Add(line));
  }
}

}  // namespace snug::server
