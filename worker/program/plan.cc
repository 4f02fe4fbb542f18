#include "worker/program/plan.h"

#include <algorithm>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/program/lowering/demand.h"
#include "worker/program/lowering/graph.h"

namespace snug::program {
namespace {

// `*` is any run of characters.
bool Matches(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == '*') {
    return Matches(pattern.substr(1), name) || (!name.empty() && Matches(pattern, name.substr(1)));
  }
  return !name.empty() && pattern[0] == name[0] && Matches(pattern.substr(1), name.substr(1));
}

size_t LiteralLength(std::string_view pattern) {
  return pattern.size() - static_cast<size_t>(std::count(pattern.begin(), pattern.end(), '*'));
}

using Pattern = std::pair<const std::string, Stash>;

// The pattern that decides `site`, or null.
absl::StatusOr<const Pattern*> Decider(const std::map<std::string, Stash>& patterns,
                                       const std::string& site) {
  const Pattern* best = nullptr;
  const Pattern* rival = nullptr;
  for (const Pattern& pattern : patterns) {
    if (!Matches(pattern.first, site)) continue;
    const size_t length = LiteralLength(pattern.first);
    const size_t longest = best == nullptr ? 0 : LiteralLength(best->first);
    if (best == nullptr || length > longest) {
      best = &pattern;
      rival = nullptr;
    } else if (length == longest) {
      rival = &pattern;
    }
  }
  if (rival == nullptr) return best;
  return absl::InvalidArgumentError(absl::StrCat("memory.stash: '", best->first, "' and '",
                                                 rival->first, "' both match ", site,
                                                 " with equally long literal parts"));
}

bool IsInput(const Program& program, const Site& site) {
  const std::vector<int>& inputs = program.type_of(site.block).inputs;
  return std::find(inputs.begin(), inputs.end(), site.value) != inputs.end();
}

std::string KnownSites(const std::vector<Site>& sites) {
  std::string known;
  for (const Site& site : sites) {
    if (site.block == sites.front().block)
      absl::StrAppend(&known, known.empty() ? "" : ", ", site.name);
  }
  return known;
}

}  // namespace

// What is reached when nothing but borders is kept: values that a backward needs, or that can be
// read while such a value is made again.
std::vector<Site> SitesOf(const Program& program) {
  const absl::StatusOr<Graph> graph = GraphOf(program);
  if (!graph.ok()) return {};
  const Plan nothing = RecomputePlan(program, static_cast<int>(program.config.layers));
  const BlockRange all = {0, static_cast<int32_t>(program.blocks.size())};
  const Demand demand = DemandOf(*graph, StashesOf(program, *graph, nothing), all);
  std::vector<Site> sites;
  for (size_t v = 0; v < graph->values.size(); ++v) {
    const GraphValue& place = graph->values[v];
    const int layer = program.blocks[static_cast<size_t>(place.block)].layer;
    if (layer < 0 || !demand.touched[v]) continue;
    const BlockType& type = program.type_of(place.block);
    const Value& value = type.values[static_cast<size_t>(place.index)];
    sites.push_back({.block = place.block,
                     .value = place.index,
                     .name = absl::StrCat("layers.", layer, ".", value.site),
                     .bytes_per_token = value.width * SizeOf(value.dtype),
                     .companion = value.companion});
  }
  std::stable_sort(sites.begin(), sites.end(), [](const Site& a, const Site& b) {
    return std::pair(a.block, a.value) < std::pair(b.block, b.value);
  });
  return sites;
}

Recipe RecomputeRecipe(const BlockType& type) {
  Recipe recipe(type.values.size(), Stash::kRecompute);
  for (int input : type.inputs) recipe[static_cast<size_t>(input)] = Stash::kKeep;
  return recipe;
}

Plan RecomputePlan(const Program& program, int recomputed_layers) {
  Plan plan;
  const int layers = static_cast<int>(program.config.layers);
  plan.name = recomputed_layers == 0
                  ? "keep"
                  : absl::StrCat("recompute ", recomputed_layers, " of ", layers);
  // Types differ in the number of values (adapters), so each layer names a recipe of its type's
  // size.
  std::map<std::pair<int, bool>, int> index;
  for (const Block& block : program.blocks) {
    if (block.layer < 0) continue;
    const bool again = block.layer < recomputed_layers;
    const BlockType& type = program.types[static_cast<size_t>(block.type)];
    const auto [it, inserted] =
        index.try_emplace({block.type, again}, static_cast<int>(plan.recipes.size()));
    if (inserted)
      plan.recipes.push_back(again ? RecomputeRecipe(type)
                                   : Recipe(type.values.size(), Stash::kKeep));
    plan.layer_recipe.push_back(it->second);
  }
  return plan;
}

absl::StatusOr<Plan> PinnedPlan(const Program& program,
                                const std::map<std::string, Stash>& patterns) {
  Plan plan;
  plan.name = "pinned";
  const std::vector<Site> sites = SitesOf(program);
  std::map<const Pattern*, bool> used;
  // What is no site is read by nobody, but on the way to a layer's input that is run again.
  std::vector<Recipe> by_layer;
  for (const Block& block : program.blocks) {
    if (block.layer < 0) continue;
    const size_t values = program.types[static_cast<size_t>(block.type)].values.size();
    by_layer.emplace_back(values, Stash::kRecompute);
  }
  for (const Site& site : sites) {
    const auto decider = Decider(patterns, site.name);
    if (!decider.ok()) return decider.status();
    for (const Pattern& pattern : patterns) used[&pattern] |= Matches(pattern.first, site.name);
    const std::string& own_name =
        program.type_of(site.block).values[static_cast<size_t>(site.value)].site;
    const bool kept = *decider == nullptr ||
                      (IsInput(program, site) && !absl::EndsWith((*decider)->first, own_name));
    const int layer = program.blocks[static_cast<size_t>(site.block)].layer;
    by_layer[static_cast<size_t>(layer)][static_cast<size_t>(site.value)] =
        kept ? Stash::kKeep : (*decider)->second;
  }
  for (const Pattern& pattern : patterns) {
    if (!used[&pattern])
      return absl::InvalidArgumentError(absl::StrCat(
          "memory.stash: '", pattern.first, "' matches no site; a layer has ", KnownSites(sites)));
  }
  for (Recipe& recipe : by_layer) {
    const auto found = std::find(plan.recipes.begin(), plan.recipes.end(), recipe);
    plan.layer_recipe.push_back(static_cast<int>(found - plan.recipes.begin()));
    if (found == plan.recipes.end()) plan.recipes.push_back(std::move(recipe));
  }
  return plan;
}

}  // namespace snug::program
