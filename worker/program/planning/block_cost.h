// What one block takes under one recipe: everything that the planner knows of lowering. A block is
// lowered with as little around it as it takes: what hands it its input, the block behind it, and
// the head. Its bytes are those that it takes in the whole program, so that a mix of blocks can be
// priced without a tape.
#ifndef WORKER_PROGRAM_PLANNING_BLOCK_COST_H_
#define WORKER_PROGRAM_PLANNING_BLOCK_COST_H_

#include <algorithm>
#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/program/lower.h"
#include "worker/program/replay.h"

namespace snug::program {

// How a block takes its input over: into its own frame, when it keeps it or a form of it, or not at
// all.
struct Handover {
  bool kept = false;
  int64_t offset = 0;  // Of what is kept, in the frame.
  int64_t bytes = 0;
  bool form = false;      // The block in front writes it, beside the value,
  int64_t workspace = 0;  // and takes so much to do it.
  auto operator<=>(const Handover&) const = default;

  Handover At(int64_t other) const {
    Handover there = *this;
    there.offset = other;
    return there;
  }
};

struct BlockPrice {
  int64_t frame_bytes = 0;  // What stays until the block's backward, every value aligned.
  int64_t stash_bytes = 0;  // The same, at true sizes.
  // Of the arena, over the frame's base, in each direction.
  int64_t forward_bytes = 0;
  int64_t backward_bytes = 0;
  // At true sizes over that base: the highest instant of each direction.
  LiveBytes forward_peak;
  LiveBytes backward_peak;
  double seconds = 0.0;          // Also of writing a form of its input, which is done in front.
  double forward_seconds = 0.0;  // Those of them before backward begins.
  Handover input;                // Of the block,
  Handover output;               // of the block behind it: of its input.
  // forward_bytes without that input; and what buffers take above it, from when it is made: what is
  // live at one instant, or more, where they leave gaps.
  int64_t own_forward_bytes = 0;
  int64_t over_output_bytes = 0;
  bool gaps_over_output = false;
  int64_t peak_bytes() const { return std::max(forward_bytes, backward_bytes); }

  // The price before a block that keeps its input in the same form, elsewhere in its frame.
  // Nothing: buffers might be laid out otherwise there, and that would show in the peak.
  std::optional<BlockPrice> WithOutputAt(int64_t offset) const;
};

// What a block's frame holds that the host's memory could hold in its place.
struct HeldValue {
  int value = 0;      // Of the block's type.
  int64_t bytes = 0;  // Of the frame.
  double made = 0.0;  // Seconds of the block's forward until it is there; what it is handed: 0.
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

  // By value of the block's type.
  struct Uses {
    std::vector<bool> read;         // By its backward, when nothing is run again.
    std::vector<uint32_t> serving;  // ServingStashes (lowering/demand.h).
  };
  absl::StatusOr<Uses> UsesOfValues() const;

  // In the order in which they are made. Where no decoder block is behind.
  absl::StatusOr<std::vector<HeldValue>> HeldValues(const Recipe& recipe) const;

 private:
  Plan PlanWith(const Recipe& recipe, const Recipe& behind) const;

  Program chain_;
  LowerOptions options_;
  size_t target_ = 0;  // Of the chain's blocks.
};

// The arena of a forward tape (evaluation, generation), which no plan changes.
absl::StatusOr<int64_t> ForwardArenaBytes(const Program& program, LowerOptions options);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_PLANNING_BLOCK_COST_H_
