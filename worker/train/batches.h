// Which rows make up which micro-batch: a pure function of the rows' lengths, the seed and the
// options, so that a resumed run, the daemon's prediction and a test all see the same batches.
// Reads no tokens. What it holds is what program::DataBytes says.
#ifndef WORKER_TRAIN_BATCHES_H_
#define WORKER_TRAIN_BATCHES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "worker/program/batching.h"
#include "worker/program/tape.h"
#include "worker/train/training_options.h"

namespace snug::train {

// The rows of a dataset, by where they lie in it. Owns neither of what it is made of.
class Rows {
 public:
  // `offsets`: where each row begins, and where the last one ends.
  Rows(std::span<const int64_t> offsets, const program::LengthCounts& lengths)
      : offsets_(offsets), lengths_(&lengths) {}
  int64_t size() const { return lengths_->rows; }
  const program::LengthCounts& lengths() const { return *lengths_; }
  int64_t tokens(int64_t row) const {
    return offsets_[static_cast<size_t>(row) + 1] - offsets_[static_cast<size_t>(row)];
  }

 private:
  std::span<const int64_t> offsets_;
  const program::LengthCounts* lengths_;
};

program::Batching BatchingOf(const TrainingOptions& options);

// Rows of the dataset, in the order in which they lie behind one another; each is a document.
using MicroBatch = std::vector<int64_t>;

// Whose masks of tokens an evaluation has: those of no epoch that is trained.
inline constexpr int64_t kEvaluationEpoch = (int64_t{1} << 32) - 1;

// All of one pass over the data, micro-batch by micro-batch; `accumulation` of them make an
// optimizer step, the last may have fewer.
class EpochPlan {
 public:
  EpochPlan() = default;
  // `epoch` counts from 0.
  static EpochPlan OfTraining(const Rows& rows, const TrainingOptions& options, int64_t epoch);
  // In order, unshuffled.
  static EpochPlan OfEvaluation(const Rows& rows, const TrainingOptions& options);

  int64_t epoch() const { return epoch_; }
  int64_t micro_batches() const;
  MicroBatch Batch(int64_t micro_batch) const;

 private:
  void Pack(const Rows& rows, const TrainingOptions& options);
  MicroBatch Sequences(int64_t begin, int64_t end) const;

  int64_t epoch_ = kEvaluationEpoch;
  int64_t rows_ = 0;
  int64_t per_batch_ = 1;  // Rows, or sequences.
  bool packed_ = false;
  std::vector<uint32_t> order_;  // Rows; empty: as they lie. Packed: longest first.
  // Packed: for each place in order_, that of the row before it in its sequence, or kNone; and of
  // each sequence the last.
  std::vector<uint32_t> before_, last_;
};

// Optimizer steps of the whole run: max_steps where given, else what `epochs` give, a part of a
// step counted as one.
int64_t TotalSteps(const program::LengthCounts& lengths, const TrainingOptions& options);

// Where in the data an optimizer step lies.
struct DataCursor {
  int64_t epoch = 0;        // From 0.
  int64_t micro_batch = 0;  // The first of the step, within the epoch.
};

// Micro-batches of an epoch.
struct BatchRange {
  int64_t begin = 0, end = 0;
};

// Hands out the optimizer steps of a run one after another; the cursor is all the state there is.
// A step that fails leaves it where it was, so that whoever saves or goes on then loses no rows.
class BatchWalk {
 public:
  BatchWalk(const Rows& rows, const TrainingOptions& options, DataCursor start = {});

  // The micro-batches, in plan(), of the optimizer step at the cursor: never empty, and the same
  // until StepDone.
  BatchRange NextStep();
  // The cursor moves behind that step; after the last of an epoch the next begins.
  void StepDone();
  // Those of the step that ended at the cursor; none before the first.
  BatchRange StepBefore();
  const EpochPlan& plan() const { return plan_; }  // Until the next of these calls.

  DataCursor cursor() const { return cursor_; }  // Of the step that NextStep gives.
  double epochs_done() const;                    // Fractional.

 private:
  void Plan(int64_t epoch);

  const Rows rows_;
  const TrainingOptions options_;
  DataCursor cursor_;
  int64_t planned_ = -1;  // The epoch of plan_; the cursor's own where that is within it.
  EpochPlan plan_;
};

program::TapeKey KeyOf(const MicroBatch& batch, const Rows& rows);

}  // namespace snug::train

#endif  // WORKER_TRAIN_BATCHES_H_
