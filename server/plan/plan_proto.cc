#include "server/plan/plan_proto.h"

namespace snug::server {
namespace {

v1::StashKind ToProto(program::Stash stash) {
  return stash == program::Stash::kKeep ? v1::KEEP : v1::RECOMPUTE;
}

// As memory.stash spells it.
const char* NameOf(program::Stash stash) {
  return stash == program::Stash::kKeep ? "keep" : "recompute";
}

// "keep", "recompute", or "mixed" when a recipe has both.
std::string RecipeName(const program::NamedRecipe& recipe) {
  bool keeps = false, recomputes = false;
  for (const auto& [site, stash] : recipe.stashes)
    (stash == program::Stash::kKeep ? keeps : recomputes) = true;
  if (keeps && recomputes) return "mixed";
  return recomputes ? "recompute" : "keep";
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

}  // namespace

v1::Plan ToProto(const program::Program& program, const program::Prediction& prediction,
                 const program::LowerOptions& lower) {
  v1::Plan plan;
  plan.set_name(prediction.plan.name);
  const program::NamedPlan named = program::NamedPlanOf(program, prediction.plan);
  for (const program::NamedRecipe& recipe : named.recipes) {
    v1::Recipe& out = *plan.add_recipes();
    out.set_name(RecipeName(recipe));
    for (const auto& [site, stash] : recipe.stashes) {
      v1::SiteStash& decided = *out.add_sites();
      decided.set_site(site);
      decided.set_kind(ToProto(stash));
    }
  }
  for (int recipe : named.layer_recipe) plan.add_block_recipe(recipe);
  plan.mutable_key()->set_tokens(lower.key.tokens);
  plan.mutable_key()->set_documents(lower.key.documents);
  plan.mutable_key()->set_longest_document(lower.key.longest_document);
  FillMemory(prediction, *plan.mutable_memory());
  plan.set_arena_bytes(prediction.bytes.arena);
  plan.set_peak_bytes(prediction.bytes.total());
  plan.set_relative_work(prediction.relative_work);
  plan.set_threads(lower.machine.threads);
  plan.set_fidelity(v1::EXACT);
  for (const auto& [stash, share] : prediction.shares) (*plan.mutable_kinds())[NameOf(stash)] = share;
  return plan;
}

}  // namespace snug::server
