// The first half of lowering: a graph under a plan becomes two lists of lines, forward
// and backward, over *instances* - the forward value, its materialisation in backward, its
// gradient. No offsets yet; layout.h gives them.
//
// Rules: in backward each value has one materialisation, made at first use and kept until its last:
// by its op, or from the form that was written behind its op in forward. A form that is by its
// reader is written by that op's forward and read by its backward.
// Ops of a loop are the body of one line for all their rows; what they read of outside is there
// before it.
// A gradient grows in place where the op can add into it and nobody else reads it; else the op
// writes its share by itself, and the two are added.
#ifndef WORKER_PROGRAM_LOWERING_SCRIPT_H_
#define WORKER_PROGRAM_LOWERING_SCRIPT_H_

#include <array>
#include <cstdint>
#include <vector>

#include "worker/program/lower.h"
#include "worker/program/lowering/demand.h"
#include "worker/program/lowering/graph.h"
#include "worker/program/tape.h"

namespace snug::program {

// One value at one place in time. `birth` and `last` are lines.
struct Instance {
  int64_t bytes = 0;
  int32_t birth = 0;
  int32_t last = 0;
  int32_t adds_into = kNone;  // The instance whose buffer it must take: a sum grows in place.
  bool kept = false;          // A forward value, or a form of one, that backward reads.
  bool on_host = false;
  bool of_pass = false;  // Of a loop: there for the rows of one pass.
};

// What a line needs beside its operands.
struct LineNeeds {
  int64_t workspace_bytes = 0;
  // It makes something again for a layer whose plan says that this may run ahead.
  bool may_run_ahead = false;
  // Instances that it writes first, main output first; kNone behind the last.
  std::array<int32_t, kMaxInputs + kMaxOpParameters> fresh = Nothing();

  static constexpr decltype(fresh) Nothing() {
    decltype(fresh) none = {};
    none.fill(kNone);
    return none;
  }
};

struct Script {
  // Forward lines, then backward lines. Operands name instances, not slots.
  std::vector<Instruction> lines;
  std::vector<LineNeeds> needs;  // By line.
  std::vector<Instance> instances;
  // Where a block's forward or backward begins, rising; the end of all lines behind the last.
  std::vector<int32_t> passes;
};

// A line by which streams wait for one another, in the place of the line `like`.
Instruction EventLine(Instruction::Kind kind, int16_t event, uint8_t stream,
                      const Instruction& like);

// A graph under a plan.
struct PlannedGraph {
  const Graph& graph;
  const std::vector<SiteStash>& stashes;  // By value.
  const Loops& loops;
};

Script ScriptOf(const Program& program, const PlannedGraph& planned, const LowerOptions& options);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_LOWERING_SCRIPT_H_
