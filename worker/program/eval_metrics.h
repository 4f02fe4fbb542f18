// Which figures an evaluation gives, by what a model is trained for, and what it takes to gather
// them. Names are those of metrics.jsonl less "eval_", as transformers spells them.
#ifndef WORKER_PROGRAM_EVAL_METRICS_H_
#define WORKER_PROGRAM_EVAL_METRICS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace snug::program {

struct ModelConfig;

inline constexpr std::string_view kLossMetric = "loss", kMseMetric = "mse",
                                  kSpearmanMetric = "spearman", kExactMatchMetric = "exact_match",
                                  kRouge1Metric = "rouge1", kRouge2Metric = "rouge2",
                                  kRougeLMetric = "rougeL";

// Those by which evaluations of the model can be told better or worse, the loss first. `generates`:
// whether they generate answers (predict_with_generate).
std::vector<std::string_view> EvalMetricsOf(const ModelConfig& config, bool generates);

// Those of any task.
inline constexpr std::string_view kEvalMetrics[] = {
    kLossMetric,       "mean_token_accuracy",  "accuracy",    "f1",         "f1_micro",
    "f1_macro",        "matthews_correlation", kMseMetric,    "pearson",    kSpearmanMetric,
    kExactMatchMetric, kRouge1Metric,          kRouge2Metric, kRougeLMetric};
// Of a name with or without the prefix.
bool IsEvalMetric(std::string_view name);

// "f1" of "eval_f1" and of "f1".
std::string_view WithoutEvalPrefix(std::string_view name);

// "eval_loss, eval_f1".
std::string EvalMetricNames(std::span<const std::string_view> metrics);

// Whether a larger one is better, by the name without its prefix.
constexpr bool GreaterIsBetter(std::string_view metric) {
  return metric != kLossMetric && metric != kMseMetric;
}

// A rank correlation needs all numbers at once. Of more predictions than these, 8 MiB of them with
// their targets, none is given; an evaluation set of so many numbers is far beyond those published.
inline constexpr int64_t kMaxRankedNumbers = int64_t{1} << 20;
constexpr bool HasRanks(int64_t rows, int64_t outputs) {
  return rows * outputs <= kMaxRankedNumbers;
}

// What the host holds, at the most, to make the metrics of an evaluation over so many rows: counts
// of classes, or numbers and their ranks.
int64_t EvaluationBytes(const ModelConfig& config, int64_t rows);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_EVAL_METRICS_H_
