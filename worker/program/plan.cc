#include "worker/program/plan.h"

#include <re2/re2.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/snug/status_macros.h"
#include "worker/program/lowering/demand.h"
#include "worker/program/lowering/graph.h"

namespace snug::program {
namespace {

// A pattern, ready to be tried: RE2 takes time linear in the text, and never goes back.
struct Pattern {
  std::string text;
  SiteStash stash;
  size_t literal_length = 0;
  std::unique_ptr<RE2> expression;
  bool used = false;
  bool decides = false;  // On a site,
  bool serves = false;   // and on one that its stash can keep.
};

std::vector<Pattern> PatternsOf(const std::map<std::string, SiteStash>& stashes) {
  RE2::Options options(RE2::Latin1);
  options.set_dot_nl(true);
  std::vector<Pattern> patterns;
  for (const auto& [text, stash] : stashes) {
    // Stars in a row are one: they match the same.
    const std::vector<std::string> literals = absl::StrSplit(text, '*');
    std::string expression = RE2::QuoteMeta(literals.front());
    for (size_t i = 1; i < literals.size(); ++i) {
      const bool last = i + 1 == literals.size();
      if (!literals[i].empty() || last)
        absl::StrAppend(&expression, ".*", RE2::QuoteMeta(literals[i]));
    }
    Pattern& pattern = patterns.emplace_back();
    pattern.text = text;
    pattern.stash = stash;
    pattern.literal_length = text.size() - (literals.size() - 1);
    pattern.expression = std::make_unique<RE2>(expression, options);
  }
  return patterns;
}

// The pattern that decides `site`, or null.
absl::StatusOr<Pattern*> Decider(std::vector<Pattern>& patterns, const std::string& site) {
  Pattern* best = nullptr;
  const Pattern* rival = nullptr;
  for (Pattern& pattern : patterns) {
    if (!RE2::FullMatch(site, *pattern.expression)) continue;
    pattern.used = true;
    if (best == nullptr || pattern.literal_length > best->literal_length) {
      best = &pattern;
      rival = nullptr;
    } else if (pattern.literal_length == best->literal_length) {
      rival = &pattern;
    }
  }
  if (rival == nullptr) return best;
  return absl::InvalidArgumentError(absl::StrCat("memory.stash: '", best->text, "' and '",
                                                 rival->text, "' both match ", site,
                                                 " with equally long literal parts"));
}

bool IsInput(const Program& program, const Site& site) {
  const std::vector<int>& inputs = program.type_of(site.block).inputs;
  return std::find(inputs.begin(), inputs.end(), site.value) != inputs.end();
}

absl::Status CannotServe(const Pattern& pattern, const Site& site) {
  std::string serving;
  for (Stash stash : kAllStashes) {
    if (site.Serves(stash))
      absl::StrAppend(&serving, serving.empty() ? "" : ", ", RowOf(stash).name);
  }
  return absl::InvalidArgumentError(absl::StrCat("memory.stash: ", RowOf(pattern.stash.kind).name,
                                                 " cannot keep ", site.name, "; ", serving,
                                                 " can"));
}

// The stash that its decider gives a site. What a layer is handed is run again only where a pattern
// spells it: across layers that costs what nobody means by "*".
absl::StatusOr<SiteStash> StashBy(const Program& program, const Site& site, Pattern* decider) {
  if (decider == nullptr) return SiteStash();
  decider->decides = true;
  if (!site.Serves(decider->stash.kind)) {
    if (absl::StrContains(decider->text, '*')) return SiteStash();
    return CannotServe(*decider, site);
  }
  decider->serves = true;
  const std::string& own_name =
      program.type_of(site.block).values[static_cast<size_t>(site.value)].site;
  const bool kept = decider->stash == Stash::kRecompute && IsInput(program, site) &&
                    !absl::EndsWith(decider->text, own_name);
  return kept ? SiteStash() : decider->stash;
}

// What no backward reads is no site, and yet is there in full where it is not in a loop.
void ChunkOthers(const Program& program, std::vector<Pattern>& patterns,
                 std::vector<Recipe>& by_layer) {
  const std::vector<std::vector<bool>> chunked = ChunkedValues(program);
  for (size_t b = 0; b < program.blocks.size(); ++b) {
    const Block& block = program.blocks[b];
    if (block.layer < 0) continue;
    const BlockType& type = program.type_of(static_cast<int>(b));
    Recipe& recipe = by_layer[static_cast<size_t>(block.layer)];
    for (size_t v = 0; v < type.values.size(); ++v) {
      const bool open = recipe[v] == Stash::kRecompute;
      if (!open || !chunked[static_cast<size_t>(block.type)][v]) continue;
      const auto decider =
          Decider(patterns, absl::StrCat("layers.", block.layer, ".", type.values[v].site));
      if (!decider.ok() || *decider == nullptr) continue;
      if (RowOf((*decider)->stash.kind).in_loop) recipe[v] = (*decider)->stash;
    }
  }
}

absl::Status CheckReversible(const Program& program, const std::vector<Pattern>& patterns) {
  if (IsReversible(program)) return absl::OkStatus();
  for (const Pattern& pattern : patterns) {
    if (RowOf(pattern.stash.kind).by_inverse)
      return absl::InvalidArgumentError(
          absl::StrCat("memory.stash: '", pattern.text,
                       "' asks for reversible, and the model has no streams to ",
                       "take back; give the job reversible: native"));
  }
  return absl::OkStatus();
}

// Of the first layer that has one: those that `taken` takes.
template <typename Taken>
std::string KnownSites(const std::vector<Site>& sites, const Taken& taken) {
  std::string known;
  const Site* first = nullptr;
  for (const Site& site : sites) {
    if (!taken(site)) continue;
    if (first == nullptr) first = &site;
    if (site.block == first->block) absl::StrAppend(&known, known.empty() ? "" : ", ", site.name);
  }
  return known;
}

absl::Status ServesNowhere(const Pattern& pattern, const std::vector<Site>& sites) {
  const Stash kind = pattern.stash.kind;
  const std::string others = KnownSites(sites, [&](const Site& site) { return site.Serves(kind); });
  return absl::InvalidArgumentError(
      absl::StrCat("memory.stash: ", RowOf(kind).name, " can keep none of the sites that '",
                   pattern.text, "' decides; ",
                   others.empty() ? "this model has no site that it can keep"
                                  : absl::StrCat("of a layer it can keep ", others)));
}

}  // namespace

// What is reached when nothing but borders is kept: values that a backward needs, or that can be
// read while such a value is made again.
std::vector<Site> SitesOf(const Program& program) {
  const absl::StatusOr<Graph> graph = GraphOf(program);
  if (!graph.ok()) return {};
  const Plan nothing = RecomputePlan(program, static_cast<int>(program.config.layers));
  std::vector<SiteStash> stashes = StashesOf(program, *graph, nothing);
  const Loops loops = LoopsOf(*graph, stashes);
  const Demand demand = DemandOf(*graph, stashes, loops);
  const std::vector<uint32_t> serving = ServingStashes(*graph);
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
                     .companion = value.companion,
                     .serving = serving[v]});
  }
  std::stable_sort(sites.begin(), sites.end(), [](const Site& a, const Site& b) {
    return std::pair(a.block, a.value) < std::pair(b.block, b.value);
  });
  return sites;
}

bool IsReversible(const Program& program) {
  const auto inverts = [](const Op& op) { return RowOf(op.code).inverse.has_value(); };
  return std::any_of(program.types.begin(), program.types.end(), [&](const BlockType& type) {
    return std::any_of(type.ops.begin(), type.ops.end(), inverts);
  });
}

std::vector<std::vector<bool>> ChunkedValues(const Program& program) {
  std::vector<std::vector<bool>> chunked;
  for (const BlockType& type : program.types) chunked.emplace_back(type.values.size(), false);
  const absl::StatusOr<Graph> graph = GraphOf(program);
  if (!graph.ok()) return chunked;
  // Blocks of one type are served alike: whether an op works row by row is the op's.
  const std::vector<bool> served = ServedByChunk(*graph);
  for (size_t v = 0; v < served.size(); ++v) {
    const GraphValue& value = graph->values[v];
    const auto type = static_cast<size_t>(program.blocks[static_cast<size_t>(value.block)].type);
    if (served[v]) chunked[type][static_cast<size_t>(value.index)] = true;
  }
  return chunked;
}

Recipe RecomputeRecipe(const BlockType& type) {
  Recipe recipe(type.values.size(), Stash::kRecompute);
  for (int input : type.inputs) recipe[static_cast<size_t>(input)] = Stash::kKeep;
  return recipe;
}

std::string RecomputeName(int recomputed_layers, int layers) {
  if (recomputed_layers == 0) return "keep";
  return absl::StrCat("recompute ", recomputed_layers, " of ", layers);
}

Plan RecomputePlan(const Program& program, int recomputed_layers) {
  Plan plan;
  const int layers = static_cast<int>(program.config.layers);
  plan.name = RecomputeName(recomputed_layers, layers);
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
                                const std::map<std::string, SiteStash>& stashes) {
  Plan plan;
  plan.name = "pinned";
  const std::vector<Site> sites = SitesOf(program);
  std::vector<Pattern> patterns = PatternsOf(stashes);
  RETURN_IF_ERROR(CheckReversible(program, patterns));
  // What is no site is read by nobody, but on the way to a layer's input that is run again.
  std::vector<Recipe> by_layer;
  for (const Block& block : program.blocks) {
    if (block.layer < 0) continue;
    const size_t values = program.types[static_cast<size_t>(block.type)].values.size();
    by_layer.emplace_back(values, Stash::kRecompute);
  }
  for (const Site& site : sites) {
    ASSIGN_OR_RETURN(Pattern* const decider, Decider(patterns, site.name));
    const int layer = program.blocks[static_cast<size_t>(site.block)].layer;
    ASSIGN_OR_RETURN(by_layer[static_cast<size_t>(layer)][static_cast<size_t>(site.value)],
                     StashBy(program, site, decider));
  }
  ChunkOthers(program, patterns, by_layer);
  for (const Pattern& pattern : patterns) {
    if (!pattern.used)
      return absl::InvalidArgumentError(
          absl::StrCat("memory.stash: '", pattern.text, "' matches no site; a layer has ",
                       KnownSites(sites, [](const Site&) { return true; })));
    if (pattern.decides && !pattern.serves) return ServesNowhere(pattern, sites);
  }
  for (Recipe& recipe : by_layer) {
    const auto found = std::find(plan.recipes.begin(), plan.recipes.end(), recipe);
    plan.layer_recipe.push_back(static_cast<int>(found - plan.recipes.begin()));
    if (found == plan.recipes.end()) plan.recipes.push_back(std::move(recipe));
  }
  return plan;
}

std::map<Stash, int64_t> SiteBytes(const Program& program, const std::vector<Site>& sites,
                                   int block, const Recipe& recipe) {
  std::map<Stash, int64_t> bytes;
  const auto before = [](const Site& site, int wanted) { return site.block < wanted; };
  auto site = std::lower_bound(sites.begin(), sites.end(), block, before);
  for (; site != sites.end() && site->block == block; ++site) {
    const Stash planned = recipe[static_cast<size_t>(site->value)].kind;
    const Stash stash = site->Serves(planned) ? planned : Stash::kKeep;
    const bool counts = !IsInput(program, *site) || RowOf(stash).has_form;
    if (!site->companion && counts) bytes[stash] += site->bytes_per_token;
  }
  return bytes;
}

std::map<Stash, double> SharesOf(const std::map<Stash, int64_t>& bytes) {
  int64_t all = 0;
  for (const auto& [stash, part] : bytes) all += part;
  std::map<Stash, double> shares;
  for (const auto& [stash, part] : bytes) {
    if (all > 0) shares[stash] = static_cast<double>(part) / static_cast<double>(all);
  }
  return shares;
}

}  // namespace snug::program
