// What a job has measured, as series of numbers over its steps, thinned to as many points as the
// caller can use.
#ifndef SERVER_API_METRIC_HISTORY_H_
#define SERVER_API_METRIC_HISTORY_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/job/job_index.h"
#include "snug/v1/metrics.pb.h"

namespace snug::server {

// Takes lines of a metrics.jsonl, in their order, and keeps at most so many points of each series,
// however many lines there are.
class MetricHistory {
 public:
  // `last_step`: of the lines that count.
  MetricHistory(const v1::GetMetricHistoryRequest& request, int64_t last_step);

  // DATA_LOSS: it is no JSON object with a step.
  absl::Status Add(absl::string_view line);

  v1::GetMetricHistoryResponse Response() const;

 private:
  // The steps that one point stands for.
  struct Stretch {
    int64_t last_step = 0;
    double sum = 0.0;
    int64_t count = 0;
    double unix_seconds = 0.0;
  };
  using Series = std::map<int64_t, Stretch>;  // By the number of the stretch.

  const std::set<std::string> wanted_;  // None: all.
  const int64_t after_step_;
  const int64_t last_step_;
  const int64_t stretch_steps_;
  std::map<std::string, Series> series_;
};

// Of the job's last attempt. Reads a file: for a pool. INVALID_ARGUMENT with the field.
absl::StatusOr<v1::GetMetricHistoryResponse> MetricHistoryOf(
    const JobIndex& index, const std::string& state_dir,
    const v1::GetMetricHistoryRequest& request);

}  // namespace snug::server

#endif  // SERVER_API_METRIC_HISTORY_H_
