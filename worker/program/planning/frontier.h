// The plans between keeping everything and running everything again that no other plan beats: for
// every budget the fastest mix of recipes that was found for it.
//
// A plan for a budget: every block, from the first, takes the recipe that is cheapest at a price
// per byte of frame, of those that fit over the frames before it; the price is the lowest at which
// all blocks fit. At the next lower price many blocks may change alike, and all of them no longer
// fit: as many of the first do as fit. What of the budget is left then goes block by block to where
// a byte saves the most time. The price is what makes it a walk along the convex hull of each
// kind's recipes; that every block looks at its own place in the arena lets the first blocks, with
// the least below them, take those that unfold the most in backward.
#ifndef WORKER_PROGRAM_PLANNING_FRONTIER_H_
#define WORKER_PROGRAM_PLANNING_FRONTIER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "worker/program/planning/plan_space.h"

namespace snug::program {

struct FrontierPoint {
  Mix mix;
  MixPrice price;
};

// The fastest mix that this search finds within `arena_bytes`, or nothing.
std::optional<FrontierPoint> FastestWithin(const PlanSpace& space, int64_t arena_bytes);

// By falling bytes and rising time, from the fastest to the smallest, never two of either alike.
// Between neighbours lies no more than kFrontierStep of the time, or nothing worth a search. Keep
// and "recompute k of L" take part.
std::vector<FrontierPoint> FrontierOf(const PlanSpace& space);

inline constexpr double kFrontierStep = 0.0005;

}  // namespace snug::program

#endif  // WORKER_PROGRAM_PLANNING_FRONTIER_H_
