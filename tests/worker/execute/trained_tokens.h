// The trained tokens of a test's batch, by the weights of all.
#ifndef TESTS_WORKER_EXECUTE_TRAINED_TOKENS_H_
#define TESTS_WORKER_EXECUTE_TRAINED_TOKENS_H_

#include <cstdint>
#include <vector>

#include "worker/execute/view.h"

namespace snug::execute {

struct TrainedTokens {
  // `labels`, `weights`: by row.
  TrainedTokens(const std::vector<int32_t>& all_labels, const std::vector<float>& all_weights) {
    for (size_t row = 0; row < all_weights.size(); ++row) {
      if (all_weights[row] == 0.0f) continue;
      rows.push_back(static_cast<int64_t>(row));
      labels.push_back(all_labels[row]);
      weights.push_back(all_weights[row]);
    }
    loss.resize(rows.size());
    entropy.resize(rows.size());
    correct.resize(rows.size());
  }
  // These must outlive the batch.
  void PutInto(Batch& batch) {
    batch.trained = static_cast<int64_t>(rows.size());
    batch.trained_rows = rows.data();
    batch.labels = labels.data();
    batch.weights = weights.data();
    batch.row_loss = loss.data();
    batch.row_entropy = entropy.data();
    batch.row_correct = correct.data();
  }
  double Loss() const {
    double sum = 0.0;
    for (double x : loss) sum += x;
    return sum;
  }

  std::vector<int64_t> rows;
  std::vector<int32_t> labels, correct;
  std::vector<float> weights;
  std::vector<double> loss, entropy;
};

}  // namespace snug::execute

#endif  // TESTS_WORKER_EXECUTE_TRAINED_TOKENS_H_
