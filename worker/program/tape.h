// A program lowered under a plan for one key of sizes: the instructions of one step and every
// buffer at its offset. The worker executes it, the daemon replays it; neither knows more of the
// step than this. (Ops and parameters that it names lie in the program, which outlives it.)
//
// Invariants: tape order is a valid serial order, and so is any that its streams and events allow;
// a slot is written by instruction `first` and not touched after `last`; two slots that overlap in
// time do not overlap in the arena, nor in the host's memory; a step writes nothing outside
// [0, arena_bytes) and, there, [0, host_bytes), but parameters' gradients that have no slot, the
// loss, and what an update changes.
#ifndef WORKER_PROGRAM_TAPE_H_
#define WORKER_PROGRAM_TAPE_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/program/program.h"
#include "worker/program/rates.h"
#include "worker/program/stream.h"
#include "worker/program/tape_key.h"

namespace snug::program {

enum class Direction : uint8_t { kForward, kBackward };
enum class Region : uint8_t { kStash, kScratch, kWorkspace, kHost };

// One buffer of the arena, or, as kHost, of the host's memory; values in place of others share it.
struct Slot {
  int64_t offset = 0;  // Bytes from the start of either, a multiple of kAlignment.
  int64_t bytes = 0;   // True size at the key, not rounded.
  int32_t first = 0;   // Instructions between which it holds something, both inclusive.
  int32_t last = 0;
  Region region = Region::kScratch;
};

inline constexpr int64_t kAlignment = 64;  // Bytes: a cache line, and what vector loads like best.
inline constexpr int kNoSlot = -1;

constexpr int64_t Aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

inline constexpr int64_t kWholeShare = 10000;

// A value or a gradient in its buffer. Absent (kNoSlot): not needed, not wanted.
struct Operand {
  int32_t slot = kNoSlot;
  int32_t width = 0;  // Elements per row.
  Rows rows = Rows::kTokens;
  DType dtype = DType::kF32;
  // In the body of a loop: the slot holds the rows of one pass alone, not all of them.
  bool of_pass = false;
  uint16_t share = 0;  // Of the rows, how many are there, in parts of kWholeShare; 0: all.

  explicit operator bool() const { return slot != kNoSlot; }
  // How many rows are there of so many, rounded up.
  int64_t RowsOf(int64_t all) const {
    return share == 0 ? all : (all * share + kWholeShare - 1) / kWholeShare;
  }
  int64_t bytes(const TapeKey& key) const { return RowsOf(key.Of(rows)) * width * SizeOf(dtype); }
};

// By position.
struct Operands {
  std::array<Operand, kMaxInputs> in;      // Forward: all. Backward: those its needs name.
  std::array<Operand, kMaxOutputs> out;    // Forward: all. Backward: those its needs name.
  std::array<Operand, kMaxOutputs> d_out;  // Backward: gradients that arrive.
  std::array<Operand, kMaxInputs> d_in;    // Backward: gradients that are wanted.

  template <typename Visit>
  void ForEach(const Visit& visit) {
    for (Operand& operand : in) visit(operand);
    for (Operand& operand : out) visit(operand);
    for (Operand& operand : d_out) visit(operand);
    for (Operand& operand : d_in) visit(operand);
  }
};

// What a backward is asked for.
struct Wanted {
  uint8_t inputs = 0;      // Bit i: the gradient of input i.
  uint8_t parameters = 0;  // Bit i: the gradient of parameter i of the op.
  bool any() const { return inputs != 0 || parameters != 0; }
};

// The lines behind it run again and again, each pass over the next rows of their operands, until
// there are no more. A slot of a pass is written anew in each; all others live as long as the loop.
struct LoopHead {
  int32_t lines = 0;  // Of the body.
  Rows rows = Rows::kTokens;
  int64_t rows_of_pass = 0;  // The last has what is left.
};

struct Instruction {
  // kUpdate gives in[0], the gradient of parameters[0], to the optimizer.
  enum class Kind : uint8_t { kRun, kCopy, kRecord, kWait, kLoop, kUpdate };
  Kind kind = Kind::kRun;
  Direction direction = Direction::kForward;
  bool recomputed = false;  // A forward run again in backward.
  uint8_t stream = kComputeStream;
  uint8_t accumulate = 0;  // Bit i: the gradient of input i is added into what its slot holds.
  uint8_t begins = 0;      // Bit i: the gradient of parameter i begins here; later lines add to it.
  int16_t event = -1;      // kRecord, kWait: of the tape's, which may be recorded again.
  const Op* op = nullptr;  // What runs, with its attributes; kCopy: none.
  int32_t block = 0;       // Of the program: the op's place, by which messages name it
  int32_t op_index = 0;    // and by which it draws. A form's: of the value's op, in its pass.
  Wanted wanted;           // Backward.
  Operands operands;       // kCopy: from in[0] to out[0].
  std::array<int32_t, kMaxOpParameters> parameters = {-1, -1, -1, -1};  // Of Program::parameters.
  // Where the gradient of a parameter is added up; kNoSlot: where the worker has it for the step.
  std::array<int32_t, kMaxOpParameters> gradients = {kNoSlot, kNoSlot, kNoSlot, kNoSlot};
  int32_t workspace = kNoSlot;  // The slice that serves what ATen takes inside.
  LoopHead loop;                // kLoop
  Work work;                    // At the tape's key, of all passes.
};

class SlotIndex {
 public:
  SlotIndex() = default;
  // By the instruction that `time` of a slot names.
  SlotIndex(const std::vector<Slot>& slots, size_t instructions, int32_t Slot::*time);

  std::span<const int32_t> at(size_t instruction) const {
    return {slots_.data() + begin_[instruction],
            static_cast<size_t>(begin_[instruction + 1] - begin_[instruction])};
  }

 private:
  std::vector<int32_t> begin_;  // By instruction, and one more.
  std::vector<int32_t> slots_;
};

struct Tape {
  TapeKey key;
  bool training = true;  // false: evaluation, forward only.
  std::vector<Instruction> instructions;
  std::vector<Slot> slots;
  SlotIndex births, deaths;  // By Slot::first and Slot::last.
  int64_t arena_bytes = 0;
  int64_t host_bytes = 0;  // Of the slots in the region kHost.
};

}  // namespace snug::program

#endif  // WORKER_PROGRAM_TAPE_H_
