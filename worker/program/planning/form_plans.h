// Plans that hold values of the layers in other ways than by keep and recompute, of whole layers:
// those that no mix of blocks' recipes is priced for (plan_space.h), as copies to the host run on
// beside the blocks behind, or as a program is no chain. They are few, and each is lowered in full.
#ifndef WORKER_PROGRAM_PLANNING_FORM_PLANS_H_
#define WORKER_PROGRAM_PLANNING_FORM_PLANS_H_

#include <vector>

#include "worker/program/plan.h"

namespace snug::program {

// For each form that is allowed, of a quarter of the layers, of half of them, ...: all that it can
// serve of what is kept of these in the form, or what each is handed in it and the rest run again.
// The same with what can be in loops over rows, and where that alone is done. Other layers keep. Of
// a chain only forms on the host.
std::vector<Plan> FormPlans(const Program& program, const FormsAllowed& allowed);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_PLANNING_FORM_PLANS_H_
