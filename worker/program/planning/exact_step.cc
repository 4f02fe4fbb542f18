#include "worker/program/planning/exact_step.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/program/plan.h"
#include "worker/program/released_gradients.h"
#include "worker/program/stages.h"

namespace snug::program {
namespace {

constexpr int64_t kParts = 16;  // From the smallest key to the plan's own: some five are lowered.

// Only layers' gradients are compared: those of the head and the embedding, which may be the
// largest of all, need no room in the arena.
Program WithReleasedLayers(Program program) {
  ReleaseGradients(program);
  for (const Block& block : program.blocks) {
    for (const int parameter : block.parameters)
      if (block.layer < 0) program.parameters[static_cast<size_t>(parameter)].released = false;
  }
  return program;
}

// 0: the smallest key; kParts: `whole`.
TapeKey KeyOfPart(const TapeKey& whole, const ModelConfig& config, int64_t part) {
  const auto between = [part](int64_t least, int64_t most) {
    least = std::min(least, most);
    return least + (most - least) * part / kParts;
  };
  TapeKey key = whole;
  if (config.of_images()) {
    key.documents = between(1, whole.documents);
    key.tokens = std::min(whole.tokens, key.documents * whole.longest_document);
  } else {
    key.tokens = between(kLeastMeasuredTokens, whole.tokens);
    key.documents = std::min(whole.documents, key.tokens);
    key.longest_document = std::min(whole.longest_document, key.tokens);
    key.source_tokens = between(kLeastMeasuredTokens, whole.source_tokens);
    key.longest_source = std::min(whole.longest_source, key.source_tokens);
  }
  key.trained = std::min(whole.trained, key.tokens);
  return WithStages(key, config);
}

absl::StatusOr<Tape> LowerPart(const Program& released, LowerOptions options, int64_t part) {
  options.training = true;
  options.key = KeyOfPart(options.key, released.config, part);
  const int layers = static_cast<int>(released.config.layers);
  return Lower(released, RecomputePlan(released, layers), options);
}

}  // namespace

bool CanMeasureDrift(const Program& program) {
  return std::none_of(program.parameters.begin(), program.parameters.end(),
                      [](const Parameter& parameter) { return parameter.released; });
}

std::vector<uint32_t> InexactKindsOf(const Program& program, const Plan& plan) {
  const auto inexact = [](const SiteStash& stash) {
    return RowOf(stash.kind).fidelity != Fidelity::kExact;
  };
  const bool none = std::none_of(
      plan.recipes.begin(), plan.recipes.end(),
      [&](const Recipe& recipe) { return std::any_of(recipe.begin(), recipe.end(), inexact); });
  if (none) return {};
  const std::vector<Site> sites = SitesOf(program);
  std::vector<uint32_t> kinds(program.parameters.size());
  bool exact = true;
  for (size_t b = 0; b < program.blocks.size(); ++b) {
    const Block& block = program.blocks[b];
    if (block.layer < 0) continue;
    const int recipe = plan.layer_recipe[static_cast<size_t>(block.layer)];
    const std::map<Stash, int64_t> by_kind =
        SiteBytes(program, sites, static_cast<int>(b), plan.recipes[static_cast<size_t>(recipe)]);
    exact = exact && IsExact(by_kind);
    for (const auto& [stash, bytes] : by_kind) {
      if (RowOf(stash).fidelity == Fidelity::kExact) continue;
      for (const int parameter : block.parameters)
        kinds[static_cast<size_t>(parameter)] |= uint32_t{1} << static_cast<int>(stash);
    }
  }
  return exact ? std::vector<uint32_t>() : kinds;
}

absl::StatusOr<int64_t> LeastExactArena(const Program& program, const LowerOptions& options) {
  ASSIGN_OR_RETURN(const Tape tape, LowerPart(WithReleasedLayers(program), options, 0));
  return tape.arena_bytes;
}

absl::StatusOr<ExactStep> ExactStepWithin(const Program& program, const LowerOptions& options,
                                          int64_t arena_bytes) {
  ExactStep step{.program = std::make_unique<const Program>(WithReleasedLayers(program)),
                 .tape = {}};
  ASSIGN_OR_RETURN(step.tape, LowerPart(*step.program, options, 0));
  if (step.tape.arena_bytes > arena_bytes)
    return absl::InternalError(absl::StrCat("the smallest exact step takes ", step.tape.arena_bytes,
                                            " bytes; the arena has ", arena_bytes));
  int64_t fits = 0, beyond = kParts + 1;
  while (fits + 1 < beyond) {
    const int64_t part = (fits + beyond) / 2;
    ASSIGN_OR_RETURN(Tape tape, LowerPart(*step.program, options, part));
    if (tape.arena_bytes > arena_bytes) {
      beyond = part;
      continue;
    }
    fits = part;
    step.tape = std::move(tape);
  }
  return step;
}

}  // namespace snug::program
