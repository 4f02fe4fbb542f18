// Which modules of a model an adapter changes, and how: PEFT's own rules (0.21:
// tuners_utils.check_target_module_exists, utils.other.get_pattern_key and _set_trainable), so that
// PEFT finds the same modules in what is exported.
//
// Stricter in what PEFT leaves to chance or to a warning: a name or a pattern that no module has,
// and two patterns of one module that say different things, are errors.
#ifndef WORKER_PROGRAM_LORA_TARGETS_H_
#define WORKER_PROGRAM_LORA_TARGETS_H_

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/program/lora_config.h"

namespace snug::program {

// The adapter of one module.
struct Adapter {
  int64_t rank = 0;
  double scale = 1.0;
  double dropout = 0.0;
  auto operator<=>(const Adapter&) const = default;
};

// By the module's path: of the whole model, or within its layer ("self_attn.q_proj").
using Adapters = std::map<std::string, Adapter>;

// A module that has a weight of its own.
struct Module {
  enum class Kind : uint8_t { kLinear, kEmbedding, kHead, kNorm };
  std::string path;  // "model.layers.3.self_attn.q_proj"
  Kind kind = Kind::kLinear;
};

// What an adapter does to a model.
struct LoraTargets {
  Adapters adapters;
  std::set<std::string> saved;  // Modules trained whole beside it: PEFT's modules_to_save.

  // Of one layer, by paths within it; `prefix`: of the paths of its modules.
  LoraTargets InLayer(const std::string& prefix) const;
  auto operator<=>(const LoraTargets&) const = default;
};

// Errors: InvalidArgument, the message begins with the field of LoraSpec that is wrong. No target
// and nothing to save at all is no error: the base as it is.
absl::StatusOr<LoraTargets> ResolveTargets(const LoraConfig& lora,
                                           const std::vector<Module>& modules);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_LORA_TARGETS_H_
