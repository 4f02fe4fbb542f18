#include "worker/program/planning/named_plan.h"

#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"

namespace snug::program {
namespace {

// By layer.
std::vector<const BlockType*> TypesOfLayers(const Program& program) {
  std::vector<const BlockType*> types;
  for (const Block& block : program.blocks) {
    if (block.layer >= 0) types.push_back(&program.types[static_cast<size_t>(block.type)]);
  }
  return types;
}

absl::StatusOr<Recipe> RecipeFor(const BlockType& type, const NamedRecipe& named,
                                 const std::string& where) {
  Recipe recipe(type.values.size(), Stash::kKeep);
  std::set<std::string> there;
  for (size_t v = 0; v < type.values.size(); ++v) {
    const Value& value = type.values[v];
    if (value.companion) continue;
    there.insert(value.site);
    const auto stash = named.stashes.find(value.site);
    if (stash == named.stashes.end())
      return absl::InvalidArgumentError(
          absl::StrCat(where, " does not say how ", value.site, " is kept"));
    recipe[v] = stash->second;
  }
  for (const auto& [site, stash] : named.stashes) {
    if (!there.contains(site))
      return absl::InvalidArgumentError(
          absl::StrCat(where, " names ", site, ", which is no site of this version's model"));
  }
  return recipe;
}

}  // namespace

NamedPlan NamedPlanOf(const Program& program, const Plan& plan) {
  NamedPlan named{.name = plan.name, .recipes = {}, .layer_recipe = plan.layer_recipe};
  named.recipes.resize(plan.recipes.size());
  const std::vector<const BlockType*> types = TypesOfLayers(program);
  for (size_t layer = 0; layer < plan.layer_recipe.size(); ++layer) {
    const size_t index = static_cast<size_t>(plan.layer_recipe[layer]);
    NamedRecipe& recipe = named.recipes[index];
    if (!recipe.stashes.empty()) continue;
    const BlockType& type = *types[layer];
    for (size_t v = 0; v < type.values.size(); ++v) {
      if (!type.values[v].companion) recipe.stashes[type.values[v].site] = plan.recipes[index][v];
    }
  }
  return named;
}

absl::StatusOr<Plan> PlanOf(const Program& program, const NamedPlan& named) {
  const std::vector<const BlockType*> types = TypesOfLayers(program);
  if (named.layer_recipe.size() != types.size())
    return absl::InvalidArgumentError(absl::StrCat("plan ", named.name, " is for ",
                                                   named.layer_recipe.size(),
                                                   " layers, the model has ", types.size()));
  Plan plan{.name = named.name, .recipes = {}, .layer_recipe = {}};
  std::map<std::pair<const BlockType*, int>, int> index;  // One recipe may serve several types.
  for (size_t layer = 0; layer < named.layer_recipe.size(); ++layer) {
    const int recipe = named.layer_recipe[layer];
    if (recipe < 0 || recipe >= static_cast<int>(named.recipes.size()))
      return absl::InvalidArgumentError(absl::StrCat("plan ", named.name, " names recipe ", recipe,
                                                     " of ", named.recipes.size()));
    const BlockType& type = *types[layer];
    const auto [it, is_new] =
        index.try_emplace({&type, recipe}, static_cast<int>(plan.recipes.size()));
    if (is_new) {
      const std::string where = absl::StrCat("plan ", named.name, ": the recipe of layer ", layer);
      ASSIGN_OR_RETURN(Recipe made,
                       RecipeFor(type, named.recipes[static_cast<size_t>(recipe)], where));
      plan.recipes.push_back(std::move(made));
    }
    plan.layer_recipe.push_back(it->second);
  }
  return plan;
}

}  // namespace snug::program
