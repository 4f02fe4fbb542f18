// Lowering: program + plan + key -> tape. Pure: the same arguments always give the same tape, in
// the daemon and in the worker.
#ifndef WORKER_PROGRAM_LOWER_H_
#define WORKER_PROGRAM_LOWER_H_

#include "absl/status/statusor.h"
#include "worker/program/head_rows.h"
#include "worker/program/op_table.h"
#include "worker/program/plan.h"
#include "worker/program/program.h"
#include "worker/program/tape.h"

namespace snug::program {

struct LowerOptions {
  TapeKey key = {};
  Machine machine = {};
  bool training = true;   // false: forward and loss only.
  int32_t head_rows = 0;  // Of a pass over which a head takes its loss; 0: the machine's.

  int32_t rows_of_head() const { return head_rows > 0 ? head_rows : HeadRowsOn(machine); }
};

absl::StatusOr<Tape> Lower(const Program& program, const Plan& plan, const LowerOptions& options);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_LOWER_H_
