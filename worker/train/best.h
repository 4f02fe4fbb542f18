// Which evaluation was the best so far, and whether a better one is still waited for: the rules of
// transformers (metric_for_best_model, EarlyStoppingCallback). Pure; its state is saved with every
// checkpoint, so that a resumed run decides as an uninterrupted one.
#ifndef WORKER_TRAIN_BEST_H_
#define WORKER_TRAIN_BEST_H_

#include <cstdint>
#include <optional>

#include "worker/checkpoint/checkpoint.h"
#include "worker/train/training_options.h"

namespace snug::train {

using checkpoint::BestState;

// Takes note of an evaluation after `step`. True: it is the best so far. Every better one is; the
// threshold is for the waiting alone. One whose metric is undefined (none) is no better than any.
bool Observe(const BestOptions& options, int64_t step, std::optional<double> metric,
             BestState& best);

// Whether as many evaluations have gone by without a better one as patience allows.
bool PatienceIsOver(const BestOptions& options, const BestState& best);

}  // namespace snug::train

#endif  // WORKER_TRAIN_BEST_H_
