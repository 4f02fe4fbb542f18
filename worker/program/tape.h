// A program lowered under a plan for one key of sizes: the instructions of one step and every
// buffer at its offset of one arena. The worker executes it, the daemon replays it; neither knows
// more of the step than this.
//
// Invariants: tape order is a valid serial order; a slot is written by instruction `first` and not
// touched after `last`; two slots that overlap in time do not overlap in the arena; a step writes
// nothing outside [0, arena_bytes) but parameters' gradients and the loss.
#ifndef WORKER_PROGRAM_TAPE_H_
#define WORKER_PROGRAM_TAPE_H_

#include <array>
#include <cstdint>
#include <vector>

#include "worker/program/program.h"

namespace snug::program {

// Sizes for which offsets are laid out. A batch may run on the tape when no coordinate of it is
// larger; ops run at true sizes.
struct TapeKey {
  int64_t tokens = 0;  // Of one micro-batch, all documents.
  int64_t documents = 0;
  int64_t longest_document = 0;  // Tokens.
  bool Covers(const TapeKey& batch) const {
    return batch.tokens <= tokens && batch.documents <= documents &&
           batch.longest_document <= longest_document;
  }
};

enum class Direction : uint8_t { kForward, kBackward };
enum class Region : uint8_t { kStash, kScratch, kCarry, kWorkspace };

// One buffer of the arena. Values that replace one another in place share it.
struct Slot {
  int64_t offset = 0;  // Bytes from the arena's start, a multiple of kAlignment.
  int64_t bytes = 0;   // True size at the key, not rounded.
  int32_t first = 0;   // Instructions between which it holds something, both inclusive.
  int32_t last = 0;
  Region region = Region::kScratch;
};

inline constexpr int64_t kAlignment = 64;  // Bytes: a cache line, and what vector loads like best.
inline constexpr int kMaxInputs = 4;
inline constexpr int kMaxOutputs = 2;
inline constexpr int kMaxOpParameters = 3;
inline constexpr int kNoSlot = -1;

// Where the buffers of an op's operands are, by position. Absent (kNoSlot): not needed, not wanted.
struct Operands {
  std::array<int32_t, kMaxInputs> in;      // Forward: all. Backward: those its needs name.
  std::array<int32_t, kMaxOutputs> out;    // Forward: all. Backward: those its needs name.
  std::array<int32_t, kMaxOutputs> d_out;  // Backward: gradients that arrive.
  std::array<int32_t, kMaxInputs> d_in;    // Backward: gradients that are wanted.
};

struct Instruction {
  enum class Kind : uint8_t { kRun, kCopy, kRecord, kWait };
  Kind kind = Kind::kRun;
  Direction direction = Direction::kForward;
  bool recomputed = false;  // A forward run again in backward.
  uint8_t stream = 0;
  uint8_t accumulate = 0;       // Bit i: the gradient of input i is added into what its slot holds.
  int16_t event = -1;           // kRecord, kWait
  int32_t block = 0;            // Index into Program::blocks.
  int32_t op = 0;               // Index into the block type's ops; kCopy: unused.
  Operands operands;            // kCopy: from in[0] to out[0].
  int32_t workspace = kNoSlot;  // The slice that serves what ATen takes inside.
};

struct Tape {
  TapeKey key;
  bool training = true;  // false: evaluation, forward only.
  std::vector<Instruction> instructions;
  std::vector<Slot> slots;
  int64_t arena_bytes = 0;
};

}  // namespace snug::program

#endif  // WORKER_PROGRAM_TAPE_H_
