// Plans of a chain that hold some values in the host's memory, block by block beside what is kept,
// run again or in loops.
//
// What copies take is no sum over blocks: they run on beside the blocks behind, and what is on its
// way lies beside the values of those. So each way of keeping a block's values is priced by an
// estimate, as if the blocks beside it were kept the same way. From keep to the fewest bytes a walk
// leads along the convex hull of these prices, one block after another; plans are taken from it
// where what lies between two neighbours is worth the most. They are to be lowered in full, which
// gives their bytes and their time: an estimate that is off makes a plan slower than it could be,
// and promises nothing.
#ifndef WORKER_PROGRAM_PLANNING_HOST_PLANS_H_
#define WORKER_PROGRAM_PLANNING_HOST_PLANS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "worker/program/lower.h"
#include "worker/program/plan.h"
#include "worker/program/planning/plan_space.h"

namespace snug::program {

// Some dozens, without names; of deep programs fewer. `space`: the program's, which holds nothing
// on the host.
absl::StatusOr<std::vector<Plan>> HostPlans(const Program& program, const PlanSpace& space,
                                            const LowerOptions& options);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_PLANNING_HOST_PLANS_H_
