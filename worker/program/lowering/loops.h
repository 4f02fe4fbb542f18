// Which ops run in loops over rows: those that make or read a value that the plan keeps by
// `chunk`. Such a value is there for the rows of one pass alone, so it may be as wide as it likes;
// in backward it is made again, pass by pass, from what lies outside the loop (Mini-Sequence
// Transformer, section 3.2). An op that takes the loss has a loop to itself under every plan, for
// the logits of a pass are in its workspace.
#ifndef WORKER_PROGRAM_LOWERING_LOOPS_H_
#define WORKER_PROGRAM_LOWERING_LOOPS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "worker/program/lowering/graph.h"
#include "worker/program/stash.h"

namespace snug::program {

struct Loop {
  int32_t rows_of_pass = 0;  // 0: by how many there are.
  Rows rows = Rows::kTokens;
  bool takes_loss = false;     // By the one op that it has then.
  std::vector<int32_t> nodes;  // Of one block, in the order in which they run.
};

// What runs at one place of the order: a node or a loop; the other is kNone.
struct Step {
  int32_t node = kNone;
  int32_t loop = kNone;
};

struct Loops {
  std::vector<Loop> loops;
  std::vector<int32_t> of_node;     // By node: its loop or kNone.
  std::vector<bool> inner;          // By value: no op outside of one loop makes or reads it.
  std::vector<Step> steps;          // In the order in which forward runs.
  std::vector<int32_t> first_step;  // By block, and one more.

  std::span<const Step> steps_of(int32_t block) const {
    const auto b = static_cast<size_t>(block);
    return {steps.data() + first_step[b], steps.data() + first_step[b + 1]};
  }
};

// Whether a value may be kept by `chunk`: what makes it and what reads it works row by row, in its
// block. By value.
std::vector<bool> ServedByChunk(const Graph& graph);

// The loops of a plan, by value in `stashes`; what no loop can hold is kept, and is said to be
// there: what `chunk` does not serve, and a loop between whose ops another has to run.
Loops LoopsOf(const Graph& graph, std::vector<SiteStash>& stashes);

// Rows of a pass of a plan's loop; where the plan leaves them open: an eighth of all, as a power of
// two from 256 to 4096. Fewer make products slow, more save nothing beside what is kept.
int64_t RowsOfPass(const Loop& loop, int64_t rows);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_LOWERING_LOOPS_H_
