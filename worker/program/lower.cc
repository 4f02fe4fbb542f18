// Program -> graph -> demand -> script -> layout -> tape; worker/program/lowering has the parts.
#include "worker/program/lower.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/program/lowering/graph.h"
#include "worker/program/lowering/layout.h"
#include "worker/program/lowering/recovery.h"
#include "worker/program/lowering/script.h"
#include "worker/program/lowering/streams.h"

namespace snug::program {
namespace {

absl::Status CheckRecipes(const Program& program, const Plan& plan) {
  for (const Block& block : program.blocks) {
    if (block.layer < 0) continue;
    if (block.layer >= static_cast<int>(plan.layer_recipe.size()))
      return absl::InvalidArgumentError(absl::StrCat(
          "plan ", plan.name, " is for ", plan.layer_recipe.size(), " layers, the model has more"));
    const int index = plan.layer_recipe[static_cast<size_t>(block.layer)];
    if (index < 0 || index >= static_cast<int>(plan.recipes.size()))
      return absl::InvalidArgumentError(
          absl::StrCat("plan ", plan.name, " names recipe ", index, " of ", plan.recipes.size()));
    const size_t stashes = plan.recipes[static_cast<size_t>(index)].size();
    const BlockType& type = program.types[static_cast<size_t>(block.type)];
    if (stashes != type.values.size())
      return absl::InvalidArgumentError(absl::StrCat("plan ", plan.name, ": recipe ", index,
                                                     " has ", stashes, " stashes, block type ",
                                                     type.name, " has ", type.values.size()));
  }
  return absl::OkStatus();
}

absl::Status CheckKey(const TapeKey& key) {
  if (key.tokens >= 1 && key.documents >= 1 && key.longest_document >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError("a tape's key needs a token, a document and its length");
}

}  // namespace

absl::StatusOr<Tape> Lower(const Program& program, const Plan& plan, const LowerOptions& options) {
  RETURN_IF_ERROR(CheckRecipes(program, plan));
  RETURN_IF_ERROR(CheckKey(options.key));
  ASSIGN_OR_RETURN(const Graph graph, GraphOf(program));
  // Forward alone keeps nothing: it is the same under every plan.
  std::vector<SiteStash> stashes = options.training ? StashesOf(program, graph, plan)
                                                    : std::vector<SiteStash>(graph.values.size());
  const Loops loops = LoopsOf(graph, stashes);
  Script script = RecoverAhead(ScriptOf(program, {graph, stashes, loops}, options));
  Layout layout = LayOut(OverlapCopies(std::move(script)));
  const size_t instructions = layout.instructions.size();
  SlotIndex births(layout.slots, instructions, &Slot::first);
  SlotIndex deaths(layout.slots, instructions, &Slot::last);
  return Tape{.key = options.key,
              .training = options.training,
              .instructions = std::move(layout.instructions),
              .slots = std::move(layout.slots),
              .births = std::move(births),
              .deaths = std::move(deaths),
              .arena_bytes = layout.arena_bytes,
              .host_bytes = layout.host_bytes};
}

}  // namespace snug::program
