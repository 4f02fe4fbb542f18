// Which values are kept for backward, and which ops are run again there. Everything follows from
// the needs of the op table, from what is trained, and from the plan.
//
// Rules: what a backward needs is kept, or its producer is run again, whose inputs follow the same
// rule; the chain stops at parameters, at the batch, at kept values and at those of which a form is
// held. A form that a backward takes itself is held only where the value is not needed besides;
// else the value's op runs again. A companion (lse, r, za) is kept whenever its op is not run again
// anyway. A value of a loop's pass is never there but in the loop. A value that is made again by an
// inverse needs what its reader gave and read beside it, by the same rule; what would be made of
// itself is kept.
#ifndef WORKER_PROGRAM_LOWERING_DEMAND_H_
#define WORKER_PROGRAM_LOWERING_DEMAND_H_

#include <cstdint>
#include <vector>

#include "worker/program/lowering/graph.h"
#include "worker/program/lowering/loops.h"
#include "worker/program/plan.h"

namespace snug::program {

struct Demand {
  std::vector<bool> kept;     // By value: itself.
  std::vector<bool> formed;   // By value: a form of it.
  std::vector<bool> rerun;    // By node.
  std::vector<bool> touched;  // By value: needed at all.
};

// Whether, kept so, an inverse makes it again; else its own op does.
bool IsByInverse(const GraphValue& value, const SiteStash& stash);

// `stashes`: by value of the graph.
Demand DemandOf(const Graph& graph, const std::vector<SiteStash>& stashes, const Loops& loops);

// By value of the graph, the stashes that can keep it: bit s is that of kAllStashes[s]. A companion
// is kept or run again. A form that backwards take serves a value where all that need it take it;
// one that is by its reader, where that is one alone; `chunk` what ServedByChunk says.
std::vector<uint32_t> ServingStashes(const Graph& graph);

// What a plan says of every value of the graph; kept is what lies outside the layers, what the
// plan's stash cannot serve, and what could only be made again of itself.
std::vector<SiteStash> StashesOf(const Program& program, const Graph& graph, const Plan& plan);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_LOWERING_DEMAND_H_
