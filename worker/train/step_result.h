// What a step gives, and what a trainer holds meanwhile.
#ifndef WORKER_TRAIN_STEP_RESULT_H_
#define WORKER_TRAIN_STEP_RESULT_H_

#include <cstdint>

#include "worker/program/model_config.h"
#include "worker/train/batches.h"
#include "worker/train/figures.h"

namespace snug::train {

struct Memory {
  // Context, mapped weights, what the order of the data may take, and what the allocator has given.
  int64_t current_bytes = 0;
  int64_t peak_bytes = 0;
  int64_t arena_bytes = 0;
  // Where the host computes, what of its memory no device's bytes are: mapped datasets, and what
  // the plan puts beside the device.
  int64_t beside_bytes = 0;
};

// Of a step's or an evaluation's trained tokens.
struct TokenMetrics {
  double loss = 0.0;                 // Per unit of loss weight.
  double mean_token_accuracy = 0.0;  // Share of those that the model ranks first.
  double entropy = 0.0;              // Of its distribution, in nats per token.
};

// What the share of a task's labels that are ranked first is called; null: it has none, and no
// entropy.
inline const char* AccuracyName(const program::ModelConfig& config) {
  if (config.has_targets() && config.problem == program::Problem::kRegression) return nullptr;
  return config.classifies() ? kAccuracy : kTokenAccuracy;
}

// What an evaluation gave.
struct Evaluation : TokenMetrics {
  Figures figures;  // Beside the loss; of the evaluation set alone.
};

// What one optimizer step gave.
struct StepResult : TokenMetrics {
  double gradient_norm = 0.0;  // Before clipping.
  double learning_rate = 0.0;
  int64_t tokens = 0;
  int64_t samples = 0;       // Rows of the dataset.
  BatchRange micro_batches;  // Of Trainer::epoch_plan().
};

}  // namespace snug::train

#endif  // WORKER_TRAIN_STEP_RESULT_H_
