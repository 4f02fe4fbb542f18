// The second half of lowering: instances of a block's script get buffers, in place where lifetimes
// allow, and buffers get offsets.
//
// The block's stash frame grows from its base, ordered by death in backward (first freed on top);
// scratch and workspace hang from the top of the arena, around the carry. Offsets here are relative
// to those two; assembly (lower.cc) makes them absolute.
#ifndef WORKER_PROGRAM_BLOCK_LAYOUT_H_
#define WORKER_PROGRAM_BLOCK_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/program/block_script.h"

namespace snug::program {

enum class Place : uint8_t {
  kFrame,      // `offset` from the frame's base.
  kScratch,    // `offset` from the arena's top downwards to the slot's first byte.
  kWorkspace,  // As scratch, for one instruction.
  kCarry,      // The very top, where blocks hand on x and dx; free in between.
  kNextFrame,  // The next block keeps its input: this block's output lies in that block's frame.
};

struct LocalSlot {
  Place place = Place::kScratch;
  int64_t bytes = 0;
  int64_t offset = 0;
  int32_t first = 0;  // Positions in the block's list of lines.
  int32_t last = 0;
};

struct BlockLayout {
  std::vector<Instruction> lines;  // Operands name local slots.
  int32_t forward_lines = 0;
  std::vector<LocalSlot> slots;
  int64_t frame_bytes = 0;
  int64_t peak_bytes = 0;    // Over the frame's base.
  int64_t input_offset = 0;  // In the frame, when the input is kept.
  bool input_kept = false;
  // Local slots at the block's borders, kNoSlot where there is none.
  int32_t input = kNoSlot, output = kNoSlot, d_output = kNoSlot, d_input = kNoSlot;
};

// What the block's output meets: the next block's kept input, or the carry.
struct NextBlock {
  bool input_kept = false;
  int64_t input_offset = 0;
};

absl::StatusOr<BlockLayout> LayOut(const BlockScript& script, const BlockType& type,
                                   NextBlock next);

constexpr int64_t Aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace snug::program

#endif  // WORKER_PROGRAM_BLOCK_LAYOUT_H_
