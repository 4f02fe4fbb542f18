#include "worker/train/best.h"

#include <cmath>

namespace snug::train {

bool Observe(const BestOptions& options, int64_t step, std::optional<double> metric,
             BestState& best) {
  const bool first = best.step < 0;
  const bool above = metric > best.metric, below = metric < best.metric;
  const bool better = metric.has_value() && (first || (options.greater_is_better ? above : below));
  const bool enough = first || (better && std::abs(*metric - best.metric) > options.threshold);
  best.waited = better && enough ? 0 : best.waited + 1;
  if (!better) return false;
  best.step = step;
  best.metric = *metric;
  return true;
}

bool PatienceIsOver(const BestOptions& options, const BestState& best) {
  return options.patience > 0 && best.waited >= options.patience;
}

}  // namespace snug::train
