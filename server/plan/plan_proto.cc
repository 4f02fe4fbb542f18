#include "server/plan/plan_proto.h"

#include <set>

#include "absl/strings/ascii.h"

namespace snug::server {
namespace {

v1::StashKind ToProto(program::Stash stash) {
  v1::StashKind kind = v1::STASH_KIND_UNSPECIFIED;
  v1::StashKind_Parse(absl::AsciiStrToUpper(program::RowOf(stash).name), &kind);
  return kind;
}

// The stash's name, or "mixed" when a recipe has several.
std::string RecipeName(const program::Recipe& recipe) {
  const std::set<program::Stash> stashes(recipe.begin(), recipe.end());
  if (stashes.size() > 1) return "mixed";
  return std::string(
      program::RowOf(stashes.empty() ? program::Stash::kKeep : *stashes.begin()).name);
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
  memory.set_host_bytes(bytes.host);
}

}  // namespace

// The schema's name of a kind is the program's, in capitals.
std::optional<program::Stash> StashFrom(v1::StashKind kind) {
  return program::StashOfName(absl::AsciiStrToLower(v1::StashKind_Name(kind)));
}

v1::Plan ToProto(const program::Prediction& prediction, const program::LowerOptions& lower) {
  v1::Plan plan;
  plan.set_name(prediction.plan.name);
  for (const program::Recipe& recipe : prediction.plan.recipes) {
    v1::Recipe& out = *plan.add_recipes();
    out.set_name(RecipeName(recipe));
    for (program::Stash stash : recipe) out.add_stash(ToProto(stash));
  }
  for (int recipe : prediction.plan.layer_recipe) plan.add_block_recipe(recipe);
  plan.mutable_key()->set_tokens(lower.key.tokens);
  plan.mutable_key()->set_documents(lower.key.documents);
  plan.mutable_key()->set_longest_document(lower.key.longest_document);
  FillMemory(prediction, *plan.mutable_memory());
  plan.set_arena_bytes(prediction.bytes.arena);
  plan.set_peak_bytes(prediction.bytes.total());
  plan.set_relative_work(prediction.relative_work);
  plan.set_threads(lower.machine.threads);
  return plan;
}

}  // namespace snug::server
