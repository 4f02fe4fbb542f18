#include "client/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

namespace snug::client {
namespace {

struct Quantity {
  const char* name;  // As metrics.jsonl has it.
  const char* title;
};
constexpr Quantity kQuantities[] = {
    {"loss", "loss"},
    {"eval_loss", "eval loss"},
    {"learning_rate", "learning rate"},
    {"grad_norm", "gradient norm"},
    {"tokens_per_second", "tokens/s"},
};

// The time that it took says nothing of the model.
bool IsDrawnEvaluation(absl::string_view name) {
  return absl::StartsWith(name, "eval_") && name != "eval_runtime";
}

std::vector<std::pair<double, double>> PointsOf(const v1::MetricSeries& series) {
  std::vector<std::pair<double, double>> points;
  const int known = std::min(series.steps_size(), series.values_size());
  for (int i = 0; i < known; ++i)
    points.emplace_back(static_cast<double>(series.steps(i)), series.values(i));
  return points;
}

Panel& PanelOf(const std::string& title, Chart& chart) {
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

void AddJob(const v1::Job& job, const v1::GetMetricHistoryResponse& history, Chart& chart) {
  const int index = static_cast<int>(chart.jobs.size());
  chart.jobs.push_back(Called(job));
  std::map<std::string, const v1::MetricSeries*> by_name;
  for (const v1::MetricSeries& series : history.series()) by_name[series.name()] = &series;
  const auto add = [&](const std::string& name, const std::string& title) {
    const auto found = by_name.find(name);
    if (found == by_name.end()) return;
    PanelOf(title, chart).series.push_back({.job = index, .points = PointsOf(*found->second)});
    by_name.erase(found);
  };
  for (const Quantity& quantity : kQuantities) add(quantity.name, quantity.title);
  for (const v1::MetricSeries& series : history.series())
    if (IsDrawnEvaluation(series.name()))
      add(series.name(), absl::StrReplaceAll(series.name(), {{"_", " "}}));
  if (job.memory().budget_bytes() > 0)
    chart.memory.push_back({.job = index,
                            .peak_bytes = job.memory().measured_peak_bytes(),
                            .budget_bytes = job.memory().budget_bytes()});
}

Range StepsOf(const Panel& panel) {
  return RangeOf(panel, [](const std::pair<double, double>& point) { return point.first; });
}

Range ValuesOf(const Panel& panel) {
  return RangeOf(panel, [](const std::pair<double, double>& point) { return point.second; });
}

std::string AxisText(double value) { return absl::StrFormat("%.3g", value); }

}  // namespace snug::client
