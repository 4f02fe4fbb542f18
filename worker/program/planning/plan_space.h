// All plans of a chain of blocks at one key, priced: for each kind of block the recipes worth
// choosing from and what each takes, and what a mix of them takes together. A mix is priced by a
// walk over its blocks, and comes to the byte to what lowering lays out.
#ifndef WORKER_PROGRAM_PLANNING_PLAN_SPACE_H_
#define WORKER_PROGRAM_PLANNING_PLAN_SPACE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/program/planning/block_cost.h"
#include "worker/program/planning/recipes.h"

namespace snug::program {

// By block, an index into its kind's choices.
using Mix = std::vector<uint16_t>;

// A recipe of a kind of block, and what it takes.
struct Choice {
  Recipe recipe;
  BlockPrice price;                     // Before the head.
  std::map<Stash, int64_t> site_bytes;  // program::SiteBytes.
  size_t handover = 0;  // What the block in front meets: an index into its price_before.
  std::vector<BlockPrice> price_before;  // By handover of the block behind; 0: of the head.
};

// A choice in short, for walks that look at all of them.
struct Offer {
  int64_t frame_bytes = 0;
  int64_t peak_bytes = 0;  // Whatever block is behind.
  double seconds = 0.0;
};

struct BlockKind {
  int block = 0;  // The first of its kind.
  bool d_input_wanted = false;
  bool decided = false;         // By a plan: a decoder block. The others have one choice.
  std::vector<Choice> choices;  // Of a layer: keep, recompute (recipes.h), others.
  std::vector<Offer> offers;    // By choice.
};

struct MixPrice {
  int64_t arena_bytes = 0;
  double seconds = 0.0;
};

class PlanSpace {
 public:
  static absl::StatusOr<PlanSpace> Make(const Program& program, const LowerOptions& options,
                                        const FormsAllowed& allowed = {},
                                        const RecipeLimits& limits = {});

  PlanSpace() = default;

  size_t blocks() const { return kind_of_.size(); }
  const BlockKind& KindOf(size_t block) const { return kinds_[kind_of_[block]]; }
  size_t KindIndex(size_t block) const { return kind_of_[block]; }
  const std::vector<BlockKind>& kinds() const { return kinds_; }
  const BlockPrice& PriceOf(const Mix& mix, size_t block) const;

  MixPrice Price(const Mix& mix) const;
  LiveBytes PeakOf(const Mix& mix) const;  // Of the arena, as replay finds it.

  std::map<Stash, double> SharesOf(const Mix& mix) const;  // Of the sites' bytes, by stash.

  // Keep everywhere, or the first k decoder blocks run again: RecomputePlan's.
  Mix RecomputeMix(int recomputed_layers) const;
  // The k of such a mix; null: it is another one.
  std::optional<int> RecomputedLayers(const Mix& mix) const;
  // Its recipes without doubles; `name` is left empty.
  Plan PlanOf(const Mix& mix) const;

 private:
  friend class PlanSpaceBuilder;

  std::vector<BlockKind> kinds_;
  std::vector<size_t> kind_of_;  // By block.
};

}  // namespace snug::program

#endif  // WORKER_PROGRAM_PLANNING_PLAN_SPACE_H_
