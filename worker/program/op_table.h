// One row per op: what its backward reads, where it may write in place, what it costs. Lowering
// reads nothing else about an op.
#ifndef WORKER_PROGRAM_OP_TABLE_H_
#define WORKER_PROGRAM_OP_TABLE_H_

#include <cstdint>
#include <optional>

#include "worker/program/program.h"
#include "worker/program/rates.h"
#include "worker/program/tape.h"

namespace snug::program {

struct OpRow {
  const char* name;
  // A row of its results comes of the same row of its inputs alone, and so do gradients: it may run
  // over a few rows at a time.
  bool row_wise;
  // Which inputs (bits 0..) and outputs (bits 16..) the backward reads, given what is wanted.
  uint32_t (*needs)(Wanted wanted);
  // Bit i: output 0 may be written over input i (same bytes, each element read before it is
  // written).
  uint8_t forward_in_place;
  // d_in[i] may be written over: bit j < 8: the gradient of output 0 (bit 0); bits 8 + j: input j.
  // One entry per input.
  uint16_t backward_in_place[kMaxInputs];
  // Bit i: d_in[i] can be added into what its slot holds.
  uint8_t can_accumulate;
  // Bit i: the gradient of input i is that of output 0 itself. Then nothing runs for it, but where
  // gradients of one value meet, for which the op's forward adds two.
  uint8_t passes_gradient = 0;
  // In training the backward gives the loss as well, and no forward runs. Either runs in a loop of
  // its own, over LossRows: of what has other rows each pass sees all.
  bool takes_loss = false;
  // Bit i: the backward can read codes of two bits in the place of input i, which the forward then
  // writes behind its outputs (stash.h).
  uint8_t takes_codes = 0;
  // What lies beside the codes: the activation itself, by which the other input's gradient is.
  bool codes_beside_activation = false;
  // Bit i: the backward can read a sample of input i's rows in its place.
  uint8_t takes_sample = 0;
  // The op that makes input 0 again, to the bit, of output 0 and the inputs behind.
  std::optional<OpCode> inverse = std::nullopt;
};

const OpRow& RowOf(OpCode code);

// Of an op that has one: an op of no block.
const Op& InverseOf(const Op& op);

inline constexpr uint32_t kNeedsOutput = 1u << 16;  // Shifted left by the output's position.

// Facts of the machine that sizes inside library ops depend on.
struct Machine {
  int threads = 1;
  bool cpu = true;
  Rates rates = {};       // Of time alone: tapes are the same whatever they are.
  int32_t head_rows = 0;  // MachineRates::head_rows, of a GPU.
};

// What a line of a tape takes. A CPU starts a run and then does its work. A GPU is given the next
// runs while it works: of a line, what takes longer counts.
double SecondsOf(const Work& work, const Machine& machine);

// One run of an op, by its shapes.
struct RunShape {
  const Op* op = nullptr;
  Direction direction = Direction::kForward;
  Wanted wanted;  // Backward.
  TapeKey key;
  DType compute = DType::kF32;
  int64_t vocabulary = 0;  // Rows of a head's matrix that has one per token.
  uint16_t sampled = 0;    // Backward: of input 0 this share of the rows is there; 0: all.
  int64_t passes = 1;      // That do the work of the key's rows.
  bool cpu = true;         // Where it runs.
  // Shapes of all inputs and outputs, whether the run names them or not; slots say nothing.
  std::array<Operand, kMaxInputs> in;
  std::array<Operand, kMaxOutputs> out;

  // Rows of input i, of output i.
  int64_t in_rows(size_t i) const { return key.Of(in[i].rows); }
  int64_t out_rows(size_t i) const { return key.Of(out[i].rows); }
};

// Rows of a head's matrix: classes or tokens.
inline int64_t HeadRows(const RunShape& run) {
  return run.op->attributes.rows > 0 ? run.op->attributes.rows : run.vocabulary;
}

// Of what a head reads, `read`, the rows that it takes a loss of.
inline Rows LossRows(const Op& head, Rows read) {
  return head.attributes.selected ? read : Rows::kTrained;
}

Work WorkOf(const RunShape& run);

// Bytes that the run may take from its workspace slice: results of ATen ops without an out variant,
// their scratch, our own temporaries. Measured, never exceeded (worker/program/workspace.cc has the
// formulas; tests hold them against a counting allocator).
int64_t WorkspaceBytes(const RunShape& run, const Machine& machine);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_OP_TABLE_H_
