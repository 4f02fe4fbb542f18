#include "worker/program/plan.h"

#include <algorithm>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "worker/program/block_script.h"
#include "worker/program/gradients.h"

namespace snug::program {
namespace {

// Values that a backward needs, or that can be read while such a value is made again: everything
// reached when nothing is kept.
std::vector<bool> SiteValues(const Program& program, int block, bool d_input_wanted) {
  const BlockType& type = program.type_of(block);
  const Recipe nothing(type.values.size(), Stash::kRecompute);
  const LowerOptions options;
  return DemandOf({&program, block, &nothing, d_input_wanted, &options}).touched;
}

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

std::string KnownSites(const std::vector<Site>& sites) {
  std::string known;
  for (const Site& site : sites) {
    if (site.block == sites.front().block)
      absl::StrAppend(&known, known.empty() ? "" : ", ", site.name);
  }
  return known;
}

}  // namespace

std::vector<Site> SitesOf(const Program& program) {
  const std::vector<bool> wanted = OutputGradientWanted(program);
  std::vector<Site> sites;
  for (int b = 0; b < static_cast<int>(program.blocks.size()); ++b) {
    const int layer = program.blocks[static_cast<size_t>(b)].layer;
    if (layer < 0) continue;
    const BlockType& type = program.type_of(b);
    const std::vector<bool> is_site = SiteValues(program, b, wanted[static_cast<size_t>(b) - 1]);
    for (size_t v = 0; v < type.values.size(); ++v) {
      if (!is_site[v]) continue;
      const Value& value = type.values[v];
      sites.push_back({.block = b,
                       .value = static_cast<int>(v),
                       .name = absl::StrCat("layers.", layer, ".", value.site),
                       .bytes_per_token = value.width * SizeOf(value.dtype),
                       .companion = value.companion});
    }
  }
  return sites;
}

Plan RecomputePlan(const Program& program, int recomputed_layers) {
  Plan plan;
  const int layers = static_cast<int>(program.config.layers);
  plan.name = recomputed_layers == 0
                  ? "keep"
                  : absl::StrCat("recompute ", recomputed_layers, " of ", layers);
  // Types differ in the number of values (adapters), so each layer names a recipe of its type's
  // size.
  std::map<std::pair<int, Stash>, int> index;
  for (int layer = 0; layer < layers; ++layer) {
    const int block = program.first_layer_block() + layer;
    const Stash stash = layer < recomputed_layers ? Stash::kRecompute : Stash::kKeep;
    const int type = program.blocks[static_cast<size_t>(block)].type;
    const auto [it, inserted] =
        index.try_emplace({type, stash}, static_cast<int>(plan.recipes.size()));
    if (inserted)
      plan.recipes.emplace_back(program.types[static_cast<size_t>(type)].values.size(), stash);
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
  std::vector<Recipe> by_layer;
  for (int64_t layer = 0; layer < program.config.layers; ++layer) {
    const int block = program.first_layer_block() + static_cast<int>(layer);
    by_layer.emplace_back(program.type_of(block).values.size(), Stash::kKeep);
  }
  for (const Site& site : sites) {
    const auto decider = Decider(patterns, site.name);
    if (!decider.ok()) return decider.status();
    for (const Pattern& pattern : patterns) used[&pattern] |= Matches(pattern.first, site.name);
    if (*decider == nullptr) continue;
    const int layer = program.blocks[static_cast<size_t>(site.block)].layer;
    by_layer[static_cast<size_t>(layer)][static_cast<size_t>(site.value)] = (*decider)->second;
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
