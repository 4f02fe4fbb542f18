// Executes a tape: one loop, a table of functions, no decisions. What runs, where and in which
// order is the tape's.
#ifndef WORKER_EXECUTE_EXECUTOR_H_
#define WORKER_EXECUTE_EXECUTOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/execute/device.h"
#include "worker/execute/op_run.h"
#include "worker/execute/slot_memory.h"
#include "worker/program/program.h"
#include "worker/program/tape.h"

namespace snug::execute {

// What one instruction took from its workspace, against what it declares, and how long it ran; in a
// loop the most that a pass took, and all passes' time.
struct WorkspaceUse {
  int64_t declared_bytes = 0;
  int64_t used_bytes = 0;
  double seconds = 0.0;
};

// Takes a gradient that is complete, of a parameter of the program; it lies there until this
// returns.
using UpdateFunction = std::function<absl::Status(int32_t parameter, const View& gradient)>;

class Executor {
 public:
  // `parameters`: by index of Program::parameters. All arguments must outlive the executor.
  Executor(std::span<const ParameterView> parameters, Device& device);

  // Another table of functions, for tests that plant a mistake in an op.
  void UseFunctions(const OpFunctionTable& functions) { functions_ = &functions; }

  // Runs the tape on one micro-batch that its key covers. Training: gradients become the
  // parameters', or are added to these (scalars.accumulate), or, where the tape releases them, are
  // given to `update`; those that no line of the tape gives stay as they are. Returns the loss,
  // times scalars.loss_scale.
  absl::StatusOr<double> Run(const program::Tape& tape, SlotMemory& memory, const Batch& batch,
                             const StepScalars& scalars, const UpdateFunction& update = {});

  // Of the last tape that ran.
  const TokenSums& token_sums() const { return token_sums_; }

  // By instruction of the last tape that ran.
  const std::vector<WorkspaceUse>& workspace_use() const { return workspace_use_; }

 private:
  // Rows that a pass of a loop works on.
  struct Pass {
    int64_t first_row = 0;
    int64_t rows = 0;
    bool last = true;
  };
  struct Frame {  // Of one Run.
    const program::Tape& tape;
    SlotMemory& memory;
    const Batch& batch;
    const StepScalars& scalars;
    const UpdateFunction& update;
    const program::LoopHead* loop = nullptr;  // That whose body runs; null: none.
    size_t loop_line = 0;
    Pass pass;
  };

  absl::Status RunLines(Frame& frame);
  // The line and, of a loop, those of its body; gives the line behind.
  absl::StatusOr<size_t> RunLine(Frame& frame, size_t t);
  absl::Status RunLoop(Frame& frame, size_t t);
  // With the slots that are born and die there.
  absl::Status RunWithSlots(Frame& frame, size_t t);
  absl::Status Step(Frame& frame, const program::Instruction& line, size_t t);
  absl::Status RunOp(Frame& frame, const program::Instruction& line, size_t t);
  // In a slice of its own; another stream than the one that computes may have a thread of its own.
  absl::Status RunInSlice(OpRun run, const Slice& slice, void (*function)(const OpRun&), size_t t);
  // What went wrong first on another stream. A tape waits for all that runs there.
  absl::Status WrongBeside();
  // Of the parameter's shape, in a slot of the tape.
  View GradientAt(int32_t parameter, char* slot) const;
  OpRun Bind(const Frame& frame, const program::Instruction& line) const;
  // Which gradients of parameters the line begins in this pass.
  static uint8_t Begun(const Frame& frame, const program::Instruction& line);
  // Whether all streams in fixed point stayed within their room.
  absl::Status CheckStreams(const Batch& batch);
  // Adds up what the head found of the trained tokens; gives their weighted losses.
  double Sums(const Batch& batch);

  std::span<const ParameterView> parameters_;
  Device& device_;
  const OpFunctionTable* functions_;
  TokenSums token_sums_;
  std::vector<WorkspaceUse> workspace_use_;
  std::mutex mutex_;
  absl::Status wrong_beside_;  // Under mutex_.
};

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_EXECUTOR_H_
