// Lowering: program + plan + key -> tape. Pure: the same arguments always give the same tape, in
// the daemon and in the worker.
#ifndef WORKER_PROGRAM_LOWER_H_
#define WORKER_PROGRAM_LOWER_H_

#include "absl/status/statusor.h"
#include "worker/program/op_table.h"
#include "worker/program/plan.h"
#include "worker/program/program.h"
#include "worker/program/tape.h"

namespace snug::program {

struct LowerOptions {
  TapeKey key = {};
  Machine machine = {};
  bool training = true;  // false: forward and loss only.
};

absl::StatusOr<Tape> Lower(const Program& program, const Plan& plan, const LowerOptions& options);

// What one block adds under a plan, lowered by itself: a planner adds these up.
struct BlockCost {
  int64_t frame_bytes = 0;  // Of the stack of stashes, its kept inputs among them.
  int64_t peak_bytes = 0;   // Over the frame's base, while the block runs.
  Work work;
};

absl::StatusOr<BlockCost> CostOf(const Program& program, const Plan& plan,
                                 const LowerOptions& options, int block);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_LOWER_H_
