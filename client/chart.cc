#include "client/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"

namespace snug::client {
namespace {

struct Quantity {
  const char* key;  // Of a line of metrics.jsonl.
  const char* title;
};
constexpr Quantity kQuantities[] = {
    {"loss", "loss"},
    {"eval_loss", "eval loss"},
    {"learning_rate", "learning rate"},
    {"grad_norm", "gradient norm"},
    {"tokens_per_second", "tokens/s"},
};

Panel& PanelOf(const char* title, Chart& chart) {
  for (Panel& panel : chart.panels)
    if (panel.title == title) return panel;
  chart.panels.push_back({.title = title, .series = {}});
  return chart.panels.back();
}

std::string Called(const v1::Job& job) {
  return job.display_name().empty() ? job.id() : absl::StrCat(job.display_name(), " ", job.id());
}

template <typename Pick>
Range RangeOf(const Panel& panel, Pick pick) {
  Range range{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (const Series& series : panel.series) {
    for (const auto& point : series.points) {
      range.low = std::min(range.low, pick(point));
      range.high = std::max(range.high, pick(point));
    }
  }
  if (range.low < range.high) return range;
  // One value: a band around it, so that it stands in the middle.
  const double around = range.low == 0.0 ? 1.0 : std::abs(range.low) * 0.1;
  return {range.low - around, range.high + around};
}

}  // namespace

absl::Status AddJob(const v1::Job& job, absl::string_view metrics, Chart& chart) {
  const int index = static_cast<int>(chart.jobs.size());
  std::vector<Series> found(std::size(kQuantities));
  const size_t end = metrics.rfind('\n');
  metrics = end == absl::string_view::npos ? "" : metrics.substr(0, end);
  for (const absl::string_view line : absl::StrSplit(metrics, '\n', absl::SkipEmpty())) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("global_step") || !json["global_step"].is_number())
      return absl::DataLossError(absl::StrCat("no line of metrics: ", line.substr(0, 80)));
    for (size_t i = 0; i < found.size(); ++i) {
      const auto value = json.find(kQuantities[i].key);
      if (value != json.end() && value->is_number())
        found[i].points.emplace_back(json["global_step"].get<double>(), value->get<double>());
    }
  }
  chart.jobs.push_back(Called(job));
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i].points.empty()) continue;
    found[i].job = index;
    PanelOf(kQuantities[i].title, chart).series.push_back(std::move(found[i]));
  }
  if (job.memory().budget_bytes() > 0)
    chart.memory.push_back({.job = index,
                            .peak_bytes = job.memory().measured_peak_bytes(),
                            .budget_bytes = job.memory().budget_bytes()});
  return absl::OkStatus();
}

Range StepsOf(const Panel& panel) {
  return RangeOf(panel, [](const std::pair<double, double>& point) { return point.first; });
}

Range ValuesOf(const Panel& panel) {
  return RangeOf(panel, [](const std::pair<double, double>& point) { return point.second; });
}

std::string AxisText(double value) { return absl::StrFormat("%.3g", value); }

}  // namespace snug::client
