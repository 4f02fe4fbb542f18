#include "worker/checkpoint/reversible_loader.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "worker/checkpoint/new_file.h"

namespace snug::checkpoint {
namespace {

constexpr char kModule[] = "modeling_reversible";

// Of LlamaForCausalLM: Llama.
std::string FamilyOf(const program::ModelConfig& config) {
  return std::string(absl::StripSuffix(program::ArchitectureOf(config), "ForCausalLM"));
}

// $Family, $model_type: as transformers calls them.
constexpr char kLoader[] =
    R"py("""A $Family of two streams: each half of a layer adds to one what it makes of the other.

Streams are in fixed point (steps of 2**-20), as they were in training. Needs transformers 5:
AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
"""

import torch
from transformers import $FamilyConfig, $FamilyForCausalLM
from transformers.models.$model_type.modeling_$model_type import $FamilyDecoderLayer, $FamilyRMSNorm

STEPS = 2.0**20


def fixed(x):
    """x to the nearest step, in float64, which holds it; its gradient is that of x."""
    x = x.double()
    return torch.round(x.detach() * STEPS) / STEPS + (x - x.detach())


class Reversible$FamilyLayer($FamilyDecoderLayer):
    def forward(self, hidden_states, **kwargs):
        weight = self.input_layernorm.weight
        if hidden_states.shape[-1] == weight.shape[0]:
            x1 = x2 = fixed(hidden_states)
        else:
            x1, x2 = hidden_states.chunk(2, -1)
        normed = self.input_layernorm(x2.to(weight.dtype))
        x1 = x1 + fixed(self.self_attn(hidden_states=normed, **kwargs)[0])
        normed = self.post_attention_layernorm(x1.to(weight.dtype))
        return torch.cat((x1, x2 + fixed(self.mlp(normed))), -1)


class SumOfStreams($FamilyRMSNorm):
    def forward(self, hidden_states):
        x1, x2 = hidden_states.to(self.weight.dtype).chunk(2, -1)
        return super().forward(x1 + x2)


class Reversible$FamilyConfig($FamilyConfig):
    model_type = "reversible_$model_type"


class Reversible$FamilyForCausalLM($FamilyForCausalLM):
    config_class = Reversible$FamilyConfig

    def __init__(self, config):
        super().__init__(config)
        for layer in self.model.layers:
            layer.__class__ = Reversible$FamilyLayer
        self.model.norm.__class__ = SumOfStreams
)py";

}  // namespace

std::string TypeInFiles(const program::ModelConfig& config) {
  return absl::StrCat(config.reversible ? program::kReversibleType : "", config.model_type);
}

nlohmann::ordered_json ReversibleMembers(const program::ModelConfig& config) {
  const std::string stem = absl::StrCat("Reversible", FamilyOf(config));
  nlohmann::ordered_json members = nlohmann::ordered_json::object();
  members["model_type"] = TypeInFiles(config);
  members["architectures"] = nlohmann::ordered_json::array({stem + "ForCausalLM"});
  members["auto_map"]["AutoConfig"] = absl::StrCat(kModule, ".", stem, "Config");
  members["auto_map"]["AutoModelForCausalLM"] = absl::StrCat(kModule, ".", stem, "ForCausalLM");
  return members;
}

absl::Status WriteReversibleLoader(const program::ModelConfig& config, const std::string& folder) {
  const std::string text = absl::StrReplaceAll(
      kLoader, {{"$Family", FamilyOf(config)}, {"$model_type", config.model_type}});
  return WriteNewFile(absl::StrCat(folder, "/", kModule, ".py"), text).status();
}

}  // namespace snug::checkpoint
