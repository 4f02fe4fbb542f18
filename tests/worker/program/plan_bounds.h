// How fast a mix within a budget could be at best: solvers for tests, against which the planner's
// search is held. They are slow, and sure.
#ifndef TESTS_WORKER_PROGRAM_PLAN_BOUNDS_H_
#define TESTS_WORKER_PROGRAM_PLAN_BOUNDS_H_

#include <cstdint>

#include "worker/program/planning/plan_space.h"

namespace snug::program {

// A time that no mix within the budget is below. The linear program "every block a mixture of its
// choices; at every block the frames before it and its own peak within the budget" has a dual:
// prices of a byte at every block. Any prices bound the program's optimum, and so the true one,
// from below; these are raised by subgradients, towards `known`, the time of some mix.
double LowerBound(const PlanSpace& space, int64_t arena_bytes, double known);

// The same, and nearer: a mixture of a choice with a high peak and one with a low one may lie where
// neither can. In every mix the frames leave less and less room, so that there is a block from
// which on the high peaks fit no more; the bound is the least of those for each place of that
// block.
double LowerBoundByCases(const PlanSpace& space, int64_t arena_bytes, double known);

// The fastest mix's time, if it is below `known`; else `known`. Walks over all mixes, from the
// first block on, and leaves out those that cannot come below `known` or that another one beats.
double Optimum(const PlanSpace& space, int64_t arena_bytes, double known);

}  // namespace snug::program

#endif  // TESTS_WORKER_PROGRAM_PLAN_BOUNDS_H_
