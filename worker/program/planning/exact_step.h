// The step by which an inexact plan is measured: of the same program, exact by recompute, at a key
// so small that it runs in the arena that the plan has anyway. A gradient of a layer goes as soon
// as it is complete: it is compared there and then with the inexact one, which lies where the
// optimizer reads it, so that no two of all gradients are ever held.
#ifndef WORKER_PROGRAM_PLANNING_EXACT_STEP_H_
#define WORKER_PROGRAM_PLANNING_EXACT_STEP_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/program/lower.h"

namespace snug::program {

// Steps from one measurement to the next, at least.
inline constexpr int64_t kLeastDriftSteps = 200;
// A document that does not fit is cut, to no fewer tokens than these. Of images one is whole.
inline constexpr int64_t kLeastMeasuredTokens = 32;

// Not of a program that releases its gradients: they are gone before they could be compared.
bool CanMeasureDrift(const Program& program);

template <typename Amount>
bool IsExact(const std::map<Stash, Amount>& by_kind) {
  for (const auto& [stash, amount] : by_kind)
    if (RowOf(stash).fidelity != Fidelity::kExact) return false;
  return true;
}

// By parameter, bit s: a site of a layer that reads it is kept by Stash s, which is not exact.
// Empty: the plan is exact.
std::vector<uint32_t> InexactKindsOf(const Program& program, const Plan& plan);

struct ExactStep {
  std::unique_ptr<const Program> program;  // Whose ops the tape names; parameters are the same.
  Tape tape;
};

// What such a step takes at the smallest key: of a plan that is measured no arena is below it.
// `options`: the plan's own.
absl::StatusOr<int64_t> LeastExactArena(const Program& program, const LowerOptions& options);

// At the largest of some keys, the plan's own among them, whose tape fits.
absl::StatusOr<ExactStep> ExactStepWithin(const Program& program, const LowerOptions& options,
                                          int64_t arena_bytes);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_PLANNING_EXACT_STEP_H_
