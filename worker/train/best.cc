#include "worker/train/best.h"

#include <cmath>

namespace snug::train {

bool Observe(const BestOptions& options, int64_t step, double metric, BestState& best) {
  const bool first = best.step < 0;
  const bool better =
      first || (options.greater_is_better ? metric > best.metric : metric < best.metric);
  const bool enough = first || std::abs(metric - best.metric) > options.threshold;
  best.waited = better && enough ? 0 : best.waited + 1;
  if (!better) return false;
  best.step = step;
  best.metric = metric;
  return true;
}

bool PatienceIsOver(const BestOptions& options, const BestState& best) {
  return options.patience > 0 && best.waited >= options.patience;
}

}  // namespace snug::train
