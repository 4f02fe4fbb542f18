// Lines of a worker's metrics.jsonl, as points of series.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "absl/strings/str_split.h"
#include "server/api/metric_history.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  constexpr int kPoints = 8, kLast = 100;
  snug::v1::GetMetricHistoryRequest request;
  request.set_max_points(kPoints);
  snug::server::MetricHistory history(request, kLast);
  const absl::string_view text(reinterpret_cast<const char*>(bytes), size);
  for (const absl::string_view line : absl::StrSplit(text, '\n'))
    if (!history.Add(line).ok()) break;
  const snug::v1::GetMetricHistoryResponse response = history.Response();
  for (const auto& series : response.series()) {
    if (series.steps_size() > kPoints || series.values_size() != series.steps_size()) abort();
    for (const int64_t step : series.steps())
      if (step < 0 || step > kLast) abort();
  }
  return 0;
}
