// The recipes of a block type that a plan may want: of all ways to keep some of its values and run
// the ops behind the others again, those that no other way beats.
//
// Found op by op, from the last to the first: whether a value is kept is asked once for every set
// of values that what lies behind it still needs, so that ways which come to the same thing are one
// way. What a recipe takes at its peak is not known here; of ways with like bytes and time a few
// are left for that (RecipeLimits::rivals).
#ifndef WORKER_PROGRAM_PLANNING_RECIPES_H_
#define WORKER_PROGRAM_PLANNING_RECIPES_H_

#include <cstdint>
#include <vector>

#include "worker/program/op_table.h"
#include "worker/program/plan.h"
#include "worker/program/program.h"
#include "worker/program/tape.h"

namespace snug::program {

// What is left out of the search. Tests hold plans made with these against what could be chosen
// with next to nothing left out.
struct RecipeLimits {
  int rivals = 2;  // A way stays while fewer than this many others take no more bytes and time.
  double least_gain = 5e-4;  // Of the block's time: what a way with more bytes must save.
  double least_drop = 0.01;  // Of keep's peak: what a way that is kept for its peak must save.
};

struct RecipeQuery {
  const BlockType* type = nullptr;
  std::vector<bool> read;  // By value: its block's backward reads it, when nothing is run again.
  TapeKey key;
  DType compute = DType::kF32;
  int64_t vocabulary = 0;
  Machine machine = {};
};

// Keep everything, run everything again, and the rest by falling frame bytes.
std::vector<Recipe> CandidateRecipes(const RecipeQuery& block, const RecipeLimits& limits);

// The same recipes with what they keep held in each form of the device that is allowed and serves
// it, or in several of them; and each of these, and the recipes themselves, with what can be in
// loops over rows. `serving`: by value, ServingStashes (lowering/demand.h). No two are alike.
std::vector<Recipe> FormRecipes(const BlockType& type, const std::vector<Recipe>& recipes,
                                const std::vector<uint32_t>& serving, const FormsAllowed& allowed);

inline constexpr size_t kKeepAll = 0;  // Of CandidateRecipes.
inline constexpr size_t kRecomputeAll = 1;

}  // namespace snug::program

#endif  // WORKER_PROGRAM_PLANNING_RECIPES_H_
