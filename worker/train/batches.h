// Which rows make up which micro-batch: a pure function of the rows' lengths, the seed and the
// options, so that a resumed run, the daemon's prediction and a test all see the same batches.
// Reads no tokens.
#ifndef WORKER_TRAIN_BATCHES_H_
#define WORKER_TRAIN_BATCHES_H_

#include <cstdint>
#include <vector>

#include "worker/program/tape.h"
#include "worker/train/training_options.h"

namespace snug::train {

// Rows of the dataset, in the order in which they lie behind one another; each is a document.
using MicroBatch = std::vector<int64_t>;

// All of one pass over the data, micro-batch by micro-batch; `accumulation` of them make an
// optimizer step, the last may have fewer.
struct EpochPlan {
  std::vector<MicroBatch> micro_batches;
  int64_t steps = 0;
};

// `row_tokens`: length of each row. `epoch` counts from 0.
EpochPlan PlanEpoch(const std::vector<int64_t>& row_tokens, const TrainingOptions& options,
                    int64_t epoch);

// In order, unshuffled: what evaluation runs over.
std::vector<MicroBatch> PlanEvaluation(const std::vector<int64_t>& row_tokens,
                                       const TrainingOptions& options);

// Optimizer steps of the whole run: max_steps where given, else what `epochs` give, a part of a
// step counted as one.
int64_t TotalSteps(const std::vector<int64_t>& row_tokens, const TrainingOptions& options);

// Where in the data an optimizer step lies.
struct DataCursor {
  int64_t epoch = 0;        // From 0.
  int64_t micro_batch = 0;  // The first of the step, within the epoch.
};

// Hands out the optimizer steps of a run one after another; the cursor is all the state there is.
class BatchWalk {
 public:
  BatchWalk(std::vector<int64_t> row_tokens, const TrainingOptions& options, DataCursor start = {});

  // The micro-batches of the next optimizer step. Never empty; after the last of an epoch the next
  // begins.
  std::vector<MicroBatch> NextStep();
  DataCursor cursor() const { return cursor_; }  // Of the step that NextStep gives next.
  double epochs_done() const;                    // Fractional.

 private:
  void EnterEpoch(int64_t epoch);

  const std::vector<int64_t> row_tokens_;
  const TrainingOptions options_;
  DataCursor cursor_;
  EpochPlan plan_;
};

// The micro-batches of the optimizer step that ended at `cursor`; none before the first step.
std::vector<MicroBatch> StepBefore(const std::vector<int64_t>& row_tokens,
                                   const TrainingOptions& options, DataCursor cursor);

program::TapeKey KeyOf(const MicroBatch& batch, const std::vector<int64_t>& row_tokens);

}  // namespace snug::train

#endif  // WORKER_TRAIN_BATCHES_H_
