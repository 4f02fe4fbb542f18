#include "worker/program/planning/form_plans.h"

#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/program/planning/block_cost.h"

namespace snug::program {
namespace {

// How the layers that a plan changes are kept.
struct LayerWay {
  std::string name;
  bool recompute = false;      // All but what a layer is handed,
  Stash stash = Stash::kKeep;  // which, or all, is kept so,
  bool chunk = false;          // and what can be is in loops.
};

Recipe RecipeOf(const BlockType& type, const std::vector<bool>& chunked, const LayerWay& way) {
  Recipe recipe(type.values.size(), way.stash);
  if (way.recompute) {
    recipe = RecomputeRecipe(type);
    for (int input : type.inputs) recipe[static_cast<size_t>(input)] = way.stash;
  }
  for (size_t v = 0; way.chunk && v < recipe.size(); ++v) {
    if (chunked[v]) recipe[v] = Stash::kChunk;
  }
  return recipe;
}

// Of the first `changed` layers: their stashes live the longest.
Plan PlanWith(const Program& program, int changed, const std::vector<std::vector<bool>>& chunked,
              const LayerWay& way) {
  Plan plan;
  std::map<std::pair<int, bool>, int> index;  // By block type.
  for (const Block& block : program.blocks) {
    if (block.layer < 0) continue;
    const bool other = block.layer < changed;
    const auto t = static_cast<size_t>(block.type);
    const auto [it, inserted] =
        index.try_emplace({block.type, other}, static_cast<int>(plan.recipes.size()));
    if (inserted)
      plan.recipes.push_back(RecipeOf(program.types[t], chunked[t], other ? way : LayerWay()));
    plan.layer_recipe.push_back(it->second);
  }
  return plan;
}

std::vector<LayerWay> WaysOf(const Program& program, const FormsAllowed& allowed) {
  const bool chain = IsChain(program);
  std::vector<LayerWay> ways;
  if (!chain) {
    ways.push_back({.name = "chunk", .chunk = true});
    ways.push_back({.name = "recompute and chunk", .recompute = true, .chunk = true});
  }
  if (IsReversible(program)) {
    // What no inverse makes is run again.
    ways.push_back({.name = "reversible", .stash = Stash::kReversible});
    ways.push_back({.name = "reversible and chunk", .stash = Stash::kReversible, .chunk = true});
  }
  for (Stash stash : kAllStashes) {
    if (!RowOf(stash).has_form || !allowed.Allows(stash)) continue;
    if (chain && RowOf(stash).region != Region::kHost) continue;
    const std::string name = RowOf(stash).name;
    ways.push_back({.name = name, .stash = stash});
    if (RowOf(stash).taken) continue;  // No layer is run again from such a form of its input.
    ways.push_back({.name = "recompute from " + name, .recompute = true, .stash = stash});
    ways.push_back({.name = "recompute and chunk from " + name,
                    .recompute = true,
                    .stash = stash,
                    .chunk = true});
  }
  return ways;
}

}  // namespace

std::vector<Plan> FormPlans(const Program& program, const FormsAllowed& allowed) {
  const int layers = static_cast<int>(program.config.layers);
  const std::vector<std::vector<bool>> chunked = ChunkedValues(program);
  std::set<int> counts;
  for (int quarter = 1; quarter <= 4; ++quarter) counts.insert((layers * quarter + 3) / 4);
  std::vector<Plan> plans;
  for (const LayerWay& way : WaysOf(program, allowed)) {
    for (int changed : counts) {
      plans.push_back(PlanWith(program, changed, chunked, way));
      plans.back().name = absl::StrCat(way.name, " ", changed, " of ", layers);
    }
  }
  return plans;
}

std::optional<Plan> RecoveredAhead(const Plan& plan) {
  Plan ahead = plan;
  bool any = false;
  for (Recipe& recipe : ahead.recipes) {
    for (SiteStash& stash : recipe) {
      stash.ahead = RowOf(stash.kind).by_inverse;
      any = any || stash.ahead;
    }
  }
  if (!any) return std::nullopt;
  ahead.name += ", recovered ahead";
  return ahead;
}

}  // namespace snug::program
