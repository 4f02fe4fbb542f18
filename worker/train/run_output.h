// What an attempt gives its user: the export, verified, read back and evaluated before it is
// published, and the base with the adapter merged into it.
#ifndef WORKER_TRAIN_RUN_OUTPUT_H_
#define WORKER_TRAIN_RUN_OUTPUT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/checkpoint/compatibility.h"
#include "worker/checkpoint/export.h"
#include "worker/train/run.h"
#include "worker/train/run_evaluations.h"

namespace snug::train {

// Of the run's own base, data and task.
checkpoint::ExportOptions OptionsOfExport(const Run& run);

class RunOutput {
 public:
  RunOutput(Run& run, RunEvaluations& evaluations) : run_(run), evaluations_(evaluations) {}

  // After the last step. DataLoss: the files do not give the loss of the weights.
  absl::Status Make();

  // What is known of it; of an attempt that succeeded, all.
  void Tell(AttemptResult& result) const;
  // Of the trainer that the merged model's took the place of; 0: none.
  int64_t peak_before_merge() const { return peak_before_merge_; }

 private:
  absl::Status Export();
  absl::Status ReadBack();
  absl::Status MergeIfFinite();
  absl::Status Merge();

  Run& run_;
  RunEvaluations& evaluations_;
  double verified_loss_ = 0.0;
  std::optional<double> merged_loss_;
  std::string merge_error_;
  int64_t peak_before_merge_ = 0;
  std::vector<checkpoint::ReaderReport> readers_;
};

}  // namespace snug::train

#endif  // WORKER_TRAIN_RUN_OUTPUT_H_
