#include "server/plan/plan_proto.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/enum_words.h"

namespace snug::server {
namespace {

// "keep", "recompute" or another kind; "mixed" when a recipe has several.
std::string RecipeName(const program::NamedRecipe& recipe) {
  std::set<program::Stash> kinds;
  for (const auto& [site, stash] : recipe.stashes) kinds.insert(stash.kind);
  if (kinds.size() > 1) return "mixed";
  return program::RowOf(kinds.empty() ? program::Stash::kKeep : *kinds.begin()).name;
}

v1::Recipe ToProto(const program::NamedRecipe& recipe) {
  std::map<program::SiteStash, std::vector<std::string>> sites;
  for (const auto& [site, stash] : recipe.stashes) sites[stash].push_back(site);
  v1::Recipe out;
  out.set_name(RecipeName(recipe));
  for (const auto& [stash, names] : sites) {
    v1::SitesOfKind& of_kind = *out.add_kinds();
    of_kind.set_kind(program::RowOf(stash.kind).name);
    if (stash.rows > 0) of_kind.mutable_options()->set_rows(stash.rows);
    if (stash.ahead) of_kind.mutable_options()->set_ahead(true);
    if (stash.kind == program::Stash::kSampled) {
      of_kind.mutable_options()->set_rho(stash.rho());
      of_kind.mutable_options()->set_estimator(program::NameOf(stash.estimator));
    }
    of_kind.mutable_sites()->Add(names.begin(), names.end());
  }
  return out;
}

void FillMemory(const program::Prediction& prediction, v1::MemoryComponents& memory) {
  const program::Components& bytes = prediction.bytes;
  memory.set_context_bytes(bytes.context);
  memory.set_weights_bytes(bytes.weights);
  memory.set_adapter_bytes(bytes.adapter);
  memory.set_gradients_bytes(bytes.gradients);
  memory.set_optimizer_bytes(bytes.optimizer);
  memory.set_inputs_bytes(bytes.inputs);
  memory.set_data_bytes(bytes.data);
  memory.set_stash_bytes(prediction.peak.stash);
  memory.set_scratch_bytes(prediction.peak.scratch + prediction.alignment);
  memory.set_workspace_bytes(prediction.peak.workspace);
}

v1::Fidelity FidelityOf(const program::Prediction& prediction) {
  program::Fidelity worst = program::Fidelity::kExact;
  for (const auto& [stash, share] : prediction.shares)
    worst = std::max(worst, program::RowOf(stash).fidelity);
  return static_cast<v1::Fidelity>(v1::FIDELITY_EXACT + static_cast<int>(worst));
}

}  // namespace

// The schema's name of a kind is the program's, in capitals.
std::optional<program::Stash> StashFrom(v1::StashKind kind) {
  return program::StashOfName(LowerEnumWord(kind));
}

std::optional<double> RhoOf(const v1::StashOptions& options) {
  return options.has_rho() ? std::optional(options.rho()) : std::nullopt;
}

program::SiteStash WithOptions(program::Stash kind, const v1::StashOptions& options) {
  if (kind == program::Stash::kSampled)
    return program::SampledBy(RhoOf(options), options.estimator()).value_or(kind);  // Checked.
  program::SiteStash stash(kind, options.rows());
  stash.ahead = options.ahead();
  return stash;
}

v1::TapeKey ToProto(const program::TapeKey& key) {
  v1::TapeKey to;
  to.set_tokens(key.tokens);
  to.set_documents(key.documents);
  to.set_longest_document(key.longest_document);
  to.set_source_tokens(key.source_tokens);
  to.set_longest_source(key.longest_source);
  for (const int64_t patches : key.merged) {
    if (patches > 0) to.add_merged(patches);
  }
  return to;
}

v1::Plan ToProto(const program::Program& program, const program::Prediction& prediction,
                 const program::LowerOptions& lower, const StepShape& step) {
  v1::Plan plan;
  plan.set_name(prediction.plan.name);
  const program::NamedPlan named = program::NamedPlanOf(program, prediction.plan);
  for (const program::NamedRecipe& recipe : named.recipes) *plan.add_recipes() = ToProto(recipe);
  for (int recipe : named.layer_recipe) plan.add_block_recipe(recipe);
  *plan.mutable_key() = ToProto(lower.key);
  FillMemory(prediction, *plan.mutable_memory());
  plan.set_arena_bytes(prediction.bytes.arena);
  plan.set_peak_bytes(prediction.bytes.total());
  plan.set_relative_work(prediction.relative_work);
  plan.set_threads(lower.machine.threads);
  plan.set_head_rows(lower.rows_of_head());
  const double micro_batches = static_cast<double>(step.accumulation);
  plan.set_step_seconds(micro_batches * prediction.seconds + step.optimizer_seconds);
  plan.set_tokens_per_second(micro_batches *
                             static_cast<double>(lower.key.tokens + lower.key.source_tokens) /
                             plan.step_seconds());
  plan.set_fidelity(FidelityOf(prediction));
  plan.set_host_bytes(prediction.bytes.host);
  for (const auto& [stash, share] : prediction.shares) {
    v1::KindShare& kind = *plan.add_kinds();
    kind.set_kind(program::RowOf(stash).name);
    kind.set_share(share);
  }
  return plan;
}

absl::StatusOr<program::NamedPlan> FromProto(const v1::Plan& plan) {
  program::NamedPlan named{.name = plan.name(), .recipes = {}, .layer_recipe = {}};
  for (const v1::Recipe& recipe : plan.recipes()) {
    program::NamedRecipe& out = named.recipes.emplace_back();
    for (const v1::SitesOfKind& of_kind : recipe.kinds()) {
      const std::optional<program::Stash> stash = program::StashOfName(of_kind.kind());
      if (!stash.has_value())
        return absl::InvalidArgumentError(
            absl::StrCat("plan ", plan.name(), " has an unknown kind \"", of_kind.kind(), "\""));
      for (const std::string& site : of_kind.sites())
        out.stashes[site] = WithOptions(*stash, of_kind.options());
    }
  }
  named.layer_recipe.assign(plan.block_recipe().begin(), plan.block_recipe().end());
  return named;
}

}  // namespace snug::server
