#include "worker/program/form_plans.h"

#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace snug::program {
namespace {

Recipe AllIn(const BlockType& type, Stash stash) { return Recipe(type.values.size(), stash); }

Recipe InputsIn(const BlockType& type, Stash stash) {
  Recipe recipe = RecomputeRecipe(type);
  for (int input : type.inputs) recipe[static_cast<size_t>(input)] = stash;
  return recipe;
}

using MakeRecipe = Recipe (*)(const BlockType& type, Stash stash);

// Of the first `changed` layers: their stashes live the longest.
Plan PlanWith(const Program& program, int changed, MakeRecipe make, Stash stash) {
  Plan plan;
  std::map<std::pair<int, bool>, int> index;  // By block type.
  for (const Block& block : program.blocks) {
    if (block.layer < 0) continue;
    const bool other = block.layer < changed;
    const BlockType& type = program.types[static_cast<size_t>(block.type)];
    const auto [it, inserted] =
        index.try_emplace({block.type, other}, static_cast<int>(plan.recipes.size()));
    if (inserted)
      plan.recipes.push_back(other ? make(type, stash) : AllIn(type, Stash::kKeep));
    plan.layer_recipe.push_back(it->second);
  }
  return plan;
}

}  // namespace

bool FormsAllowed::Allows(Stash stash) const {
  const StashRow& row = RowOf(stash);
  return row.fidelity <= fidelity && (row.region != Region::kHost || host_bytes > 0);
}

std::vector<Plan> FormPlans(const Program& program, const FormsAllowed& allowed) {
  const int layers = static_cast<int>(program.config.layers);
  std::set<int> counts;
  for (int quarter = 1; quarter <= 4; ++quarter) counts.insert((layers * quarter + 3) / 4);
  std::vector<Plan> plans;
  for (Stash stash : kAllStashes) {
    if (!RowOf(stash).has_form || !allowed.Allows(stash)) continue;
    for (int changed : counts) {
      const std::string share = absl::StrCat(" ", changed, " of ", layers);
      plans.push_back(PlanWith(program, changed, AllIn, stash));
      plans.back().name = absl::StrCat(RowOf(stash).name, share);
      plans.push_back(PlanWith(program, changed, InputsIn, stash));
      plans.back().name = absl::StrCat("recompute from ", RowOf(stash).name, share);
    }
  }
  return plans;
}

}  // namespace snug::program
