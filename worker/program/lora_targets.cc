#include "worker/program/lora_targets.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace snug::program {
namespace {

constexpr int64_t kMaxRank = 8192;  // Above the width of most models an adapter saves nothing.

// As PEFT matches a list of target modules: the whole path, or its end after a dot.
bool IsTarget(const std::string& path, const std::vector<std::string>& targets) {
  for (const std::string& target : targets) {
    if (target == "all-linear" || path == target || absl::EndsWith(path, "." + target)) return true;
  }
  return false;
}

bool IsInAnyLayer(const std::string& target, const ModelConfig& config) {
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    for (const std::string& path : LinearPaths(config)) {
      if (IsTarget(LayerPrefix(layer) + path, {target})) return true;
    }
  }
  return false;
}

}  // namespace

std::vector<std::string> LinearPaths(const ModelConfig& config) {
  if (config.fused_projections) {
    return {"self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj"};
  }
  return {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
          "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};
}

std::string LayerPrefix(int64_t layer) { return absl::StrCat("model.layers.", layer, "."); }

Adapters AdaptersOf(const ModelConfig& config, const TrainingMode& mode, int64_t layer) {
  Adapters adapters;
  if (!mode.lora) return adapters;
  const LoraConfig& lora = mode.adapter;
  for (const std::string& path : LinearPaths(config)) {
    if (!IsTarget(LayerPrefix(layer) + path, lora.target_modules)) continue;
    adapters[path] = {.rank = lora.rank, .scale = lora.scale(), .dropout = lora.dropout};
  }
  return adapters;
}

absl::Status CheckTargets(const ModelConfig& config, const LoraConfig& lora) {
  if (lora.rank < 1 || lora.rank > kMaxRank) {
    return absl::InvalidArgumentError(
        absl::StrCat("lora.r: ", lora.rank, " is not in [1, ", kMaxRank, "]"));
  }
  for (const std::string& target : lora.target_modules) {
    if (IsInAnyLayer(target, config)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("lora.target_modules: no module '", target, "'; this model has ",
                     absl::StrJoin(LinearPaths(config), ", "), " (or all-linear)"));
  }
  return absl::OkStatus();
}

}  // namespace snug::program
