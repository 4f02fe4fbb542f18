// The first half of lowering: one block type under one recipe becomes two lists of instructions,
// forward and backward, over *instances* - the forward value, its materialisation in backward, its
// gradient. No offsets yet; block_layout.h gives them.
//
// Rules (of recompute): in backward each value has one materialisation, made at first use and kept
// until its last; the chain stops at parameters, the batch and the block's input; a block input
// that is reached becomes a kept value.
#ifndef WORKER_PROGRAM_BLOCK_SCRIPT_H_
#define WORKER_PROGRAM_BLOCK_SCRIPT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "worker/program/lower.h"

namespace snug::program {

// One value at one place in time. `birth` and `last` are positions in the block's own list:
// forward, then backward.
struct Instance {
  int32_t value = -1;  // Of the block type.
  int64_t bytes = 0;
  int32_t birth = 0;  // kBeforeBlock: handed in by the neighbour.
  int32_t last = 0;
  int32_t adds_into =
      -1;             // The instance whose buffer it must take: a sum of gradients grows in place.
  bool kept = false;  // A forward value that backward reads.
};

inline constexpr int32_t kBeforeBlock = -1;

struct ScriptLine {
  Instruction instruction;  // Operands name instances, not slots.
  int64_t workspace_bytes = 0;
  std::vector<int32_t> fresh;  // Instances that it writes first, main output first.
};

struct BlockScript {
  std::vector<ScriptLine> lines;  // Forward lines, then backward lines.
  int32_t forward_lines = 0;
  std::vector<Instance> instances;
  // Instances at the block's borders, -1 where there is none.
  int32_t input = -1, output = -1;  // x that comes in and goes out.
  int32_t d_output = -1, d_input = -1;
  bool input_kept = false;
  std::string error;  // Not empty: a program that these rules cannot lower.
};

struct BlockRequest {
  const Program* program = nullptr;
  int block = 0;  // One that stands for all of its type, recipe and d_input_wanted.
  const Recipe* recipe = nullptr;
  bool d_input_wanted = false;
  const LowerOptions* options = nullptr;
};

BlockScript ScriptOf(const BlockRequest& request);

// Values of the block that its backward needs, directly or to run ops again, when `recipe` decides:
// those kept and those run again.
struct Demand {
  std::vector<bool> kept;     // By value.
  std::vector<bool> rerun;    // By op.
  std::vector<bool> touched;  // By value: needed at all.
};

Demand DemandOf(const BlockRequest& request);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_BLOCK_SCRIPT_H_
