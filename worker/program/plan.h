// What is chosen for a job: a stash per site of each block. Plans are data; lowering gives them
// their meaning.
#ifndef WORKER_PROGRAM_PLAN_H_
#define WORKER_PROGRAM_PLAN_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/program/program.h"
#include "worker/program/stash.h"

namespace snug::program {

// One stash per value of a block type, in the order of BlockType::values; entries of values that
// are no sites are not read.
using Recipe = std::vector<SiteStash>;

struct Plan {
  std::string name;  // "keep", "recompute 3 of 8", "pinned"
  std::vector<Recipe> recipes;
  std::vector<int> layer_recipe;  // Per decoder block, an index into recipes.
};

// A value that some backward needs, or that a recompute of such a value can read.
struct Site {
  int block = 0;
  int value = 0;
  std::string name;  // layers.<i>.<site>
  int64_t bytes_per_token = 0;
  bool companion = false;
  uint32_t serving = 0;  // ServingStashes.

  bool Serves(Stash stash) const { return (serving >> static_cast<int>(stash) & 1) != 0; }
};

std::vector<Site> SitesOf(const Program& program);

// Whether some op has an inverse: values can be kept by `reversible`.
bool IsReversible(const Program& program);

// By block type and value: whether `chunk` can serve it (lowering/loops.h).
std::vector<std::vector<bool>> ChunkedValues(const Program& program);

// A block runs again from what it is handed, which stays kept.
Recipe RecomputeRecipe(const BlockType& type);

// Keeps every site, or runs the first k of the L decoder blocks again in backward. First, because
// then the block that is run again unfolds when the stashes behind it are already gone.
Plan RecomputePlan(const Program& program, int recomputed_layers);
std::string RecomputeName(int recomputed_layers, int layers);  // "keep", "recompute 3 of 8"

// Bytes per token of a block's sites, by stash; what the recipe's stash cannot serve is kept.
// Companions do not count, nor what the block is handed, unless a form of it is held.
std::map<Stash, int64_t> SiteBytes(const Program& program, const std::vector<Site>& sites,
                                   int block, const Recipe& recipe);
std::map<Stash, double> SharesOf(const std::map<Stash, int64_t>& bytes);  // They sum to 1.

// A plan pinned by hand. `*` stands for any characters; of the patterns that match a site the one
// with the longest literal part wins; a site that none matches is kept, as is one that a pattern
// with a `*` matches but its stash cannot serve. Errors: two of equal length that disagree on a
// site, a pattern that matches no site, or none that its stash can serve, one without a `*` whose
// stash cannot serve its site. Takes time in the patterns' number and length, whatever stars they
// have.
absl::StatusOr<Plan> PinnedPlan(const Program& program,
                                const std::map<std::string, SiteStash>& patterns);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_PLAN_H_
