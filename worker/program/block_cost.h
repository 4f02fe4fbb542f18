// What one block takes under one recipe: everything that the planner knows of lowering. A block is
// lowered with as little around it as it takes: what hands it its input, the block behind it, and
// the head. Its bytes are those that it takes in the whole program, so that a mix of blocks can be
// priced without a tape.
#ifndef WORKER_PROGRAM_BLOCK_COST_H_
#define WORKER_PROGRAM_BLOCK_COST_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/program/lower.h"
#include "worker/program/replay.h"

namespace snug::program {

// How a block takes its input over: into its own frame, when it keeps it, or not at all.
struct Handover {
  bool kept = false;
  int64_t offset = 0;  // Of the input in the frame.
  auto operator<=>(const Handover&) const = default;
};

struct BlockPrice {
  int64_t frame_bytes = 0;  // What stays until the block's backward, every value aligned.
  int64_t stash_bytes = 0;  // The same, at true sizes.
  int64_t peak_bytes = 0;   // Of the arena, over the frame's base.
  LiveBytes forward_peak;   // At true sizes over that base: the highest instant of each direction.
  LiveBytes backward_peak;
  Work work;
  Handover input;   // Of the block,
  Handover output;  // of the block behind it: of its input.
};

// Whether every block reads the one before it and nothing else.
bool IsChain(const Program& program);

// Prices one kind of block of a chain, with one kind behind it.
class BlockPricer {
 public:
  struct Place {
    int block = 0;                // Of the program.
    bool d_input_wanted = false;  // Whether what lies before it is trained.
    std::optional<int> behind;    // A decoder block between it and the head.
  };
  BlockPricer(const Program& program, const Place& place, const LowerOptions& options);

  // `behind`: of the block behind, if there is one. Recipes of blocks that are no layers are not
  // read.
  absl::StatusOr<BlockPrice> Price(const Recipe& recipe, const Recipe& behind) const;

  // By value of the block's type: whether its backward reads it, when nothing is run again.
  absl::StatusOr<std::vector<bool>> ReadByBackward() const;

 private:
  Program chain_;
  LowerOptions options_;
  size_t target_ = 0;  // Of the chain's blocks.
};

// The arena of a forward tape (evaluation, generation), which no plan changes.
absl::StatusOr<int64_t> ForwardArenaBytes(const Program& program, LowerOptions options);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_BLOCK_COST_H_
