// The losses of an attempt that are not a step's: evaluations on the way, and those that the
// weights must give again when they have been written, read or resumed from.
#ifndef WORKER_TRAIN_RUN_EVALUATIONS_H_
#define WORKER_TRAIN_RUN_EVALUATIONS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/train/run.h"
#include "worker/train/run_checkpoints.h"
#include "worker/train/run_metrics.h"

namespace snug::train {

class RunEvaluations {
 public:
  RunEvaluations(Run& run, RunMetrics& metrics, RunCheckpoints& checkpoints)
      : run_(run), metrics_(metrics), checkpoints_(checkpoints) {}

  // Answers the prompts, and judges whether it is the best.
  absl::Status Evaluate();

  // What the export must reproduce to the bit, so of this process: the loss of the evaluation
  // behind the last step, or of the best one, whose weights are then taken; without an evaluation
  // set that of the last training batch.
  absl::StatusOr<double> LossToExport();

  // Of the trainer's weights as they are, on the same rows.
  absl::StatusOr<double> LossNow();

 private:
  absl::StatusOr<double> FinalLoss();
  absl::StatusOr<double> LossAsReported(int64_t step, double reported);

  Run& run_;
  RunMetrics& metrics_;
  RunCheckpoints& checkpoints_;
  int64_t evaluated_step_ = -1;  // By this process.
};

}  // namespace snug::train

#endif  // WORKER_TRAIN_RUN_EVALUATIONS_H_
