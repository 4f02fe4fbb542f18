// What an evaluation gathers of its rows' predictions, batch by batch, until its metrics are made
// of it: counts of classes, or the numbers of a regression. Exact, whatever the batches are: a
// prediction counts once, in the order of the rows. Holds program::EvaluationBytes at the most.
#ifndef WORKER_TRAIN_EVALUATION_SUMS_H_
#define WORKER_TRAIN_EVALUATION_SUMS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "worker/program/model_config.h"
#include "worker/train/class_metrics.h"
#include "worker/train/correlation.h"
#include "worker/train/figures.h"

namespace snug::train {

// What the model says of some rows, and what is right. All on the host.
struct Predictions {
  int64_t rows = 0;
  const float* logits = nullptr;    // (rows, labels)
  const int32_t* labels = nullptr;  // (rows); unless the model has targets
  const float* targets = nullptr;   // (rows, labels)
};

class EvaluationSums {
 public:
  // For a model that classifies, and an evaluation of so many rows of a dataset.
  EvaluationSums(const program::ModelConfig& config, int64_t rows);

  void Add(const Predictions& predictions);

  // Those of program::EvalMetricsOf but the loss.
  Figures Metrics() const;

 private:
  enum class Kind : uint8_t { kClasses, kSeveral, kNumbers };

  void AddClass(const float* logits, int32_t label);
  void AddLabels(const float* logits, const float* targets);
  void AddNumbers(const float* logits, const float* targets);
  Figures OfNumbers() const;
  // The mean over the outputs; none where one of them has none.
  std::optional<double> MeanPearson() const;
  std::optional<double> MeanSpearman() const;

  Kind kind_;
  size_t labels_;
  int64_t rows_ = 0;        // Seen so far.
  int64_t rows_right_ = 0;  // Of several labels: all of them.
  std::vector<ClassCounts> classes_;
  double squares_ = 0.0;          // Of what predictions are off.
  std::vector<PairSums> pairs_;   // By output.
  bool ranked_ = false;           // Whether the numbers are kept.
  std::vector<float> predicted_;  // (rows, labels)
  std::vector<float> wanted_;     // (rows, labels)
};

}  // namespace snug::train

#endif  // WORKER_TRAIN_EVALUATION_SUMS_H_
