#include "worker/train/evaluation_sums.h"

#include <algorithm>

#include "worker/program/eval_metrics.h"

namespace snug::train {

using program::Problem;

EvaluationSums::EvaluationSums(const program::ModelConfig& config, int64_t rows)
    : kind_(!config.has_targets()                    ? Kind::kClasses
            : config.problem == Problem::kRegression ? Kind::kNumbers
                                                     : Kind::kSeveral),
      labels_(static_cast<size_t>(config.labels)) {
  if (kind_ != Kind::kNumbers) {
    classes_.resize(labels_);
    return;
  }
  pairs_.resize(labels_);
  ranked_ = program::HasRanks(rows, config.labels);
  if (!ranked_) return;
  predicted_.reserve(static_cast<size_t>(rows) * labels_);
  wanted_.reserve(static_cast<size_t>(rows) * labels_);
}

void EvaluationSums::Add(const Predictions& predictions) {
  for (int64_t row = 0; row < predictions.rows; ++row) {
    const int64_t at = row * static_cast<int64_t>(labels_);
    ++rows_;
    if (kind_ == Kind::kClasses) AddClass(predictions.logits + at, predictions.labels[row]);
    if (kind_ == Kind::kSeveral) AddLabels(predictions.logits + at, predictions.targets + at);
    if (kind_ == Kind::kNumbers) AddNumbers(predictions.logits + at, predictions.targets + at);
  }
}

// Of logits that are alike the first counts, as in numpy's argmax.
void EvaluationSums::AddClass(const float* logits, int32_t label) {
  const auto best = static_cast<size_t>(std::max_element(logits, logits + labels_) - logits);
  ClassCounts& wanted = classes_[static_cast<size_t>(label)];
  ++wanted.labelled;
  ++classes_[best].predicted;
  if (best == static_cast<size_t>(label)) ++wanted.right;
}

// A label is predicted where its probability, the sigmoid of its logit, is above 1/2.
void EvaluationSums::AddLabels(const float* logits, const float* targets) {
  bool right = true;
  for (size_t v = 0; v < labels_; ++v) {
    const bool there = targets[v] > 0.5f, predicted = logits[v] > 0.0f;
    classes_[v].labelled += there;
    classes_[v].predicted += predicted;
    classes_[v].right += there && predicted;
    right = right && there == predicted;
  }
  rows_right_ += right;
}

void EvaluationSums::AddNumbers(const float* logits, const float* targets) {
  for (size_t v = 0; v < labels_; ++v) {
    const auto x = static_cast<double>(logits[v]), y = static_cast<double>(targets[v]);
    squares_ += (x - y) * (x - y);
    pairs_[v].Add(x, y, rows_);
  }
  if (!ranked_) return;
  predicted_.insert(predicted_.end(), logits, logits + labels_);
  wanted_.insert(wanted_.end(), targets, targets + labels_);
}

Figures EvaluationSums::Metrics() const {
  if (rows_ == 0) return {};
  if (kind_ == Kind::kNumbers) return OfNumbers();
  if (kind_ == Kind::kSeveral)
    return {{"accuracy", static_cast<double>(rows_right_) / static_cast<double>(rows_)},
            {"f1_micro", MicroF1(classes_)},
            {"f1_macro", MacroF1(classes_, Averaged::kAll)}};
  Figures figures = {{"accuracy", Accuracy(classes_)},
                     {"f1_macro", MacroF1(classes_, Averaged::kOccurring)},
                     {"matthews_correlation", MatthewsCorrelation(classes_)}};
  if (labels_ == 2) figures["f1"] = F1(classes_[1]);
  return figures;
}

Figures EvaluationSums::OfNumbers() const {
  Figures figures;
  figures[std::string(program::kMseMetric)] =
      squares_ / (static_cast<double>(rows_) * static_cast<double>(labels_));
  if (const auto pearson = MeanPearson()) figures["pearson"] = *pearson;
  if (const auto spearman = MeanSpearman())
    figures[std::string(program::kSpearmanMetric)] = *spearman;
  return figures;
}

std::optional<double> EvaluationSums::MeanPearson() const {
  double sum = 0.0;
  for (const PairSums& pairs : pairs_) {
    const std::optional<double> one = Pearson(pairs);
    if (!one.has_value()) return std::nullopt;
    sum += *one;
  }
  return sum / static_cast<double>(labels_);
}

std::optional<double> EvaluationSums::MeanSpearman() const {
  if (!ranked_) return std::nullopt;
  const auto rows = static_cast<size_t>(rows_);
  std::vector<uint32_t> order(rows);
  std::vector<double> x(rows), y(rows);
  double sum = 0.0;
  for (size_t v = 0; v < labels_; ++v) {
    const std::optional<double> one = Spearman({.x = predicted_.data() + v,
                                                .y = wanted_.data() + v,
                                                .stride = static_cast<int64_t>(labels_)},
                                               {.order = order, .x = x, .y = y});
    if (!one.has_value()) return std::nullopt;
    sum += *one;
  }
  return sum / static_cast<double>(labels_);
}

}  // namespace snug::train
