// Plans that hold values of the layers in other forms than their own: in the host's memory, as
// codes, a few rows at a time. Beside the mixes of keep and recompute they are few, and each is
// lowered in full.
#ifndef WORKER_PROGRAM_FORM_PLANS_H_
#define WORKER_PROGRAM_FORM_PLANS_H_

#include <cstdint>
#include <vector>

#include "worker/program/plan.h"

namespace snug::program {

// What a job lets be done to fit.
struct FormsAllowed {
  Fidelity fidelity = Fidelity::kExact;
  int64_t host_bytes = 0;

  bool Allows(Stash stash) const;
};

// For each form that is allowed, of a quarter of the layers, of half of them, ...: all that it can
// serve of what is kept of these in the form, or what each is handed in it and the rest run again.
// The same with what can be in loops over rows, and where that alone is done. Other layers keep.
std::vector<Plan> FormPlans(const Program& program, const FormsAllowed& allowed);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_FORM_PLANS_H_
