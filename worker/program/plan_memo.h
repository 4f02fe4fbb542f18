// What plans of a job need and no budget changes, worked out once: a daemon plans the same job
// again and again (plan, submit, once prepared, after a restart), and jobs of one model are alike.
#ifndef WORKER_PROGRAM_PLAN_MEMO_H_
#define WORKER_PROGRAM_PLAN_MEMO_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/program/frontier.h"

namespace snug::program {

struct PlanFacts {
  PlanSpace space;
  std::vector<FrontierPoint> frontier;
};

// By everything that the facts depend on: the program's blocks, what of them is trained, the key
// and the machine. Of the last kMostPlanFacts asked for. Of several threads that ask for the same
// at once one works it out, and the others wait for it.
absl::StatusOr<std::shared_ptr<const PlanFacts>> PlanFactsOf(const Program& program,
                                                             const LowerOptions& options);

// 200 KB each for 80 layers.
inline constexpr size_t kMostPlanFacts = 64;

}  // namespace snug::program

#endif  // WORKER_PROGRAM_PLAN_MEMO_H_
