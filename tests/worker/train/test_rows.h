// Rows of a dataset that is nowhere, by their lengths; and what a plan makes of them.
#ifndef TESTS_WORKER_TRAIN_TEST_ROWS_H_
#define TESTS_WORKER_TRAIN_TEST_ROWS_H_

#include <cstdint>
#include <vector>

#include "worker/train/batches.h"

namespace snug::train {

class TestRows {
 public:
  explicit TestRows(const std::vector<int64_t>& lengths) {
    for (int64_t tokens : lengths) {
      offsets_.push_back(offsets_.back() + tokens);
      lengths_.Add(tokens);
    }
  }
  // Valid while this is, where it is.
  Rows rows() const { return {offsets_, lengths_}; }
  const program::LengthCounts& lengths() const { return lengths_; }

 private:
  std::vector<int64_t> offsets_ = {0};
  program::LengthCounts lengths_;
};

inline std::vector<MicroBatch> BatchesOf(const EpochPlan& plan, BatchRange range) {
  std::vector<MicroBatch> batches;
  for (int64_t b = range.begin; b < range.end; ++b) batches.push_back(plan.Batch(b));
  return batches;
}

inline std::vector<MicroBatch> BatchesOf(const EpochPlan& plan) {
  return BatchesOf(plan, {0, plan.micro_batches()});
}

inline std::vector<int64_t> RowsOf(const EpochPlan& plan, BatchRange range) {
  std::vector<int64_t> rows;
  for (const MicroBatch& batch : BatchesOf(plan, range))
    rows.insert(rows.end(), batch.begin(), batch.end());
  return rows;
}

}  // namespace snug::train

#endif  // TESTS_WORKER_TRAIN_TEST_ROWS_H_
