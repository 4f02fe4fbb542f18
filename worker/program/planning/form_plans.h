// Plans that hold values of the layers in other ways than by keep and recompute, of whole layers:
// those that no mix of blocks' recipes is priced for (plan_space.h), as copies to the host run on
// beside the blocks behind, or as a program is no chain. They are few, and each is lowered in full.
// For a chain they stand beside the mixes of host_plans.h, which go by estimates: what is chosen is
// never slower than one of these.
#ifndef WORKER_PROGRAM_PLANNING_FORM_PLANS_H_
#define WORKER_PROGRAM_PLANNING_FORM_PLANS_H_

#include <optional>
#include <vector>

#include "worker/program/plan.h"

namespace snug::program {

// For each form that is allowed, of a quarter of the layers, of half of them, ...: all that it can
// serve of what is kept of these in the form, or what each is handed in it and the rest run again.
// The same with what can be in loops over rows, and where that alone is done. Other layers keep. Of
// a chain only forms on the host.
std::vector<Plan> FormPlans(const Program& program, const FormsAllowed& allowed);

// The plan with its layers' recoveries beside the backward before them (lowering/recovery.h); null:
// it has none.
std::optional<Plan> RecoveredAhead(const Plan& plan);

// The least share of a step that recovery ahead has to gain by the machine's rates to be worth its
// room: less is what two streams may cost one another and no rate says.
inline constexpr double kLeastGainAhead = 0.01;

}  // namespace snug::program

#endif  // WORKER_PROGRAM_PLANNING_FORM_PLANS_H_
