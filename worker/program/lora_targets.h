// Which linear modules of a layer get an adapter, and of what kind.
#ifndef WORKER_PROGRAM_LORA_TARGETS_H_
#define WORKER_PROGRAM_LORA_TARGETS_H_

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/program/model_config.h"
#include "worker/program/program.h"

namespace snug::program {

// The adapter of one module.
struct Adapter {
  int64_t rank = 0;
  double scale = 1.0;
  double dropout = 0.0;
  auto operator<=>(const Adapter&) const = default;
};

// By the module's path within its layer: "self_attn.q_proj".
using Adapters = std::map<std::string, Adapter>;

// The linear modules of every layer, in the order in which they run.
std::vector<std::string> LinearPaths(const ModelConfig& config);

// "model.layers.3."
std::string LayerPrefix(int64_t layer);

Adapters AdaptersOf(const ModelConfig& config, const TrainingMode& mode, int64_t layer);

// Errors: a target that no layer has (naming the modules there are), a rank out of bounds.
absl::Status CheckTargets(const ModelConfig& config, const LoraConfig& lora);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_LORA_TARGETS_H_
