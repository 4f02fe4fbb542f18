#include "worker/program/eval_metrics.h"

#include <algorithm>

#include "worker/program/model_config.h"

namespace snug::program {
namespace {

std::vector<std::string_view> OfClasses(const ModelConfig& config) {
  std::vector<std::string_view> metrics = {kLossMetric, "accuracy"};
  if (config.labels == 2) metrics.emplace_back("f1");
  metrics.insert(metrics.end(), {"f1_macro", "matthews_correlation"});
  return metrics;
}

}  // namespace

std::vector<std::string_view> EvalMetricsOf(const ModelConfig& config, bool generates) {
  if (generates)
    return {kLossMetric,   "mean_token_accuracy", kExactMatchMetric,
            kRouge1Metric, kRouge2Metric,         kRougeLMetric};
  if (!config.classifies()) return {kLossMetric, "mean_token_accuracy"};
  if (!config.has_targets()) return OfClasses(config);
  if (config.problem == Problem::kRegression)
    return {kLossMetric, kMseMetric, "pearson", kSpearmanMetric};
  return {kLossMetric, "accuracy", "f1_micro", "f1_macro"};
}

bool IsEvalMetric(std::string_view name) {
  const std::string_view metric = WithoutEvalPrefix(name);
  return std::find(std::begin(kEvalMetrics), std::end(kEvalMetrics), metric) !=
         std::end(kEvalMetrics);
}

std::string_view WithoutEvalPrefix(std::string_view name) {
  constexpr std::string_view kPrefix = "eval_";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  return name;
}

std::string EvalMetricNames(std::span<const std::string_view> metrics) {
  std::string text;
  for (const std::string_view metric : metrics)
    text.append(text.empty() ? "eval_" : ", eval_").append(metric);
  return text;
}

int64_t EvaluationBytes(const ModelConfig& config, int64_t rows) {
  constexpr int64_t kCounts = 3 * 8, kSums = 5 * 8;  // Of a class, of an output.
  constexpr int64_t kNumbers = 2 * 4, kRanks = 2 * 8 + 4;
  if (!config.classifies()) return 0;
  if (!config.has_targets() || config.problem != Problem::kRegression)
    return config.labels * kCounts;
  const int64_t sums = config.labels * kSums;
  if (!HasRanks(rows, config.labels)) return sums;
  return sums + rows * config.labels * kNumbers + rows * kRanks;
}

}  // namespace snug::program
