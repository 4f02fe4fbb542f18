// What plans of a job need and no budget changes, worked out once: a daemon plans the same job
// again and again (plan, submit, once prepared, after a restart), and jobs of one model are alike.
#ifndef WORKER_PROGRAM_PLANNING_PLAN_MEMO_H_
#define WORKER_PROGRAM_PLANNING_PLAN_MEMO_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/program/lower.h"
#include "worker/program/planning/frontier.h"
#include "worker/program/replay.h"

namespace snug::program {

// A plan that was lowered in full, and what it takes.
struct LoweredPlan {
  Plan plan;  // Where it has no name, it goes by its shares.
  int64_t arena_bytes = 0;
  int64_t host_bytes = 0;
  LiveBytes peak;
  double seconds = 0.0;
  std::map<Stash, double> shares;  // Of the sites' bytes, by stash.
};

// `sites`: the program's (SitesOf), which whoever lowers several plans asks for once.
absl::StatusOr<LoweredPlan> LowerPlan(const Program& program, const std::vector<Site>& sites,
                                      const Plan& plan, const LowerOptions& options);

struct PlanFacts {
  double keep_seconds = 0.0;
  PlanSpace space;                      // Of a chain;
  std::vector<FrontierPoint> frontier;  // of another program both are empty.
  std::vector<LoweredPlan> lowered;     // Of another program the first are keep and
  size_t recompute_plans = 0;           // "recompute k of L", so many.
};

// By everything that the facts depend on: the program's blocks, what of them is trained, the key,
// the machine and what forms are allowed. Of the last kMostPlanFacts asked for. Of several threads
// that ask for the same at once one works it out, and the others wait for it.
absl::StatusOr<std::shared_ptr<const PlanFacts>> PlanFactsOf(const Program& program,
                                                             const LowerOptions& options,
                                                             const FormsAllowed& allowed);

// 400 KB each for 80 layers.
inline constexpr size_t kMostPlanFacts = 64;

}  // namespace snug::program

#endif  // WORKER_PROGRAM_PLANNING_PLAN_MEMO_H_
