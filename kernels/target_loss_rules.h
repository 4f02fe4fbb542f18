// What one logit and its target give, the same on the CPU and on CUDA.
#ifndef KERNELS_TARGET_LOSS_RULES_H_
#define KERNELS_TARGET_LOSS_RULES_H_

#include <cmath>

#include "kernels/target_loss.h"

namespace snug::kernels::target_loss {

// Of one class, or added up over those of a row.
struct Terms {
  double loss = 0.0;
  double slope = 0.0;    // dl/dx; a sum of it means nothing.
  double entropy = 0.0;  // Nats.
  int wrong = 0;         // Classes on the wrong side.
};

SNUG_HOST_DEVICE inline Terms SquareOf(double x, double target) {
  const double apart = x - target;
  return {apart * apart, 2.0 * apart, 0.0, 1};
}

SNUG_HOST_DEVICE inline Terms BinaryOf(double x, double target) {
  const double size = x < 0.0 ? -x : x, e = exp(-size), log_sum = log1p(e);
  const double smaller = e / (1.0 + e);  // Of the two probabilities.
  const double sigmoid = x < 0.0 ? smaller : 1.0 - smaller;
  const bool right = (x > 0.0) == (target > 0.5);
  return {(x > 0.0 ? x : 0.0) - x * target + log_sum, sigmoid - target,
          log_sum + (e > 0.0 ? size * smaller : 0.0), right ? 0 : 1};
}

SNUG_HOST_DEVICE inline Terms Of(TargetLossKind kind, double x, double target) {
  return kind == TargetLossKind::kSquare ? SquareOf(x, target) : BinaryOf(x, target);
}

SNUG_HOST_DEVICE inline double WeightOf(const TargetLossParams& p, int64_t row) {
  return p.weights == nullptr ? 1.0 : static_cast<double>(p.weights[row]);
}

// What is found of a row, from the sums over its classes.
SNUG_HOST_DEVICE inline void PutRow(const TargetLossParams& p, int64_t row, const Terms& sums) {
  p.row_loss[row] = WeightOf(p, row) * (sums.loss / static_cast<double>(p.V));
  if (p.row_entropy != nullptr) p.row_entropy[row] = sums.entropy;
  if (p.row_correct != nullptr) p.row_correct[row] = sums.wrong == 0 ? 1 : 0;
}

}  // namespace snug::kernels::target_loss

#endif  // KERNELS_TARGET_LOSS_RULES_H_
