#include "server/job/inherit_adapter.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "proto/snug/status_macros.h"
#include "server/job/check_spec.h"
#include "worker/program/json.h"

namespace snug::server {
namespace {

using Json = nlohmann::json;

constexpr const char* kAllLinear = "all-linear";

// Fields of PEFT's LoraConfig that change what an adapter computes and that are not computed here.
// Each must be absent or say nothing: null, false, empty.
constexpr const char* kMustSayNothing[] = {"alpha_pattern",
                                           "alora_invocation_tokens",
                                           "exclude_modules",
                                           "fan_in_fan_out",
                                           "layer_replication",
                                           "layers_pattern",
                                           "layers_to_transform",
                                           "lora_bias",
                                           "modules_to_save",
                                           "rank_pattern",
                                           "target_parameters",
                                           "trainable_token_indices",
                                           "use_dora",
                                           "use_qalora"};

// Initialisations that leave the base's weights as they are. The others (pissa, olora, corda,
// loftq) move a part of them into the adapter, which then fits no plain base.
constexpr const char* kPlainInitialisations[] = {"gaussian", "eva", "orthogonal"};

bool SaysNothing(const Json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  return value.is_null() || value == "" || (value.is_structured() && value.empty());
}

class AdapterConfig {
 public:
  static absl::StatusOr<AdapterConfig> Read(std::string path) {
    ASSIGN_OR_RETURN(Json json, program::ReadJsonFile(path, program::JsonLimits()));
    if (!json.is_object())
      return absl::InvalidArgumentError(absl::StrCat(path, " is not a JSON object"));
    return AdapterConfig(std::move(path), std::move(json));
  }

  absl::Status CheckSupported() const {
    for (const char* field : kMustSayNothing)
      if (!SaysNothing(At(field))) return NotSupported(field);
    const Json bias = At("bias"), type = At("peft_type"), init = At("init_lora_weights");
    if (!SaysNothing(bias) && bias != "none") return NotSupported("bias");
    if (!SaysNothing(type) && type != "LORA") return NotSupported("peft_type");
    const auto plain = [&](const char* name) { return init == name; };
    if (init.is_string() &&
        std::none_of(std::begin(kPlainInitialisations), std::end(kPlainInitialisations), plain))
      return NotSupported("init_lora_weights");
    return absl::OkStatus();
  }

  absl::Status InheritRank(v1::LoraSpec& lora) const {
    const Json rank = At("r");
    if (!rank.is_number_integer() || rank < 1 || rank > kMaxRank)
      return Error(absl::StrCat("r is missing or outside 1 to ", kMaxRank));
    if (lora.r() != 0 && rank != lora.r()) return Contradiction("r", absl::StrCat(lora.r()));
    lora.set_r(rank.get<int32_t>());
    return absl::OkStatus();
  }

  absl::Status InheritScale(v1::LoraSpec& lora) const {
    const Json alpha = At("lora_alpha"), rslora = At("use_rslora");
    if (!alpha.is_number() || !(alpha.get<double>() > 0.0))
      return Error("lora_alpha is missing or not above 0");
    if (lora.lora_alpha() != 0.0 && alpha != lora.lora_alpha())
      return Contradiction("lora_alpha", absl::StrCat(lora.lora_alpha()));
    lora.set_lora_alpha(alpha.get<double>());
    if (!rslora.is_null() && !rslora.is_boolean()) return NotSupported("use_rslora");
    const bool square_root = rslora.is_boolean() && rslora.get<bool>();
    if (lora.has_use_rslora() && lora.use_rslora() != square_root)
      return Contradiction("use_rslora", lora.use_rslora() ? "true" : "false");
    lora.set_use_rslora(square_root);
    return absl::OkStatus();
  }

  // Modules that the job names itself are held against the adapter's tensors, later.
  absl::Status InheritModules(v1::LoraSpec& lora) const {
    const Json modules = At("target_modules");
    if (!lora.target_modules().empty() || modules.is_null()) return absl::OkStatus();
    if (modules == kAllLinear) {
      lora.add_target_modules(kAllLinear);
      return absl::OkStatus();
    }
    if (!modules.is_array())
      return Error(absl::StrCat("target_modules is the pattern ", modules.dump(),
                                "; name the modules in the job's lora.target_modules"));
    for (const Json& module : modules) {
      if (!module.is_string()) return NotSupported("target_modules");
      lora.add_target_modules(module.get<std::string>());
    }
    return absl::OkStatus();
  }

 private:
  AdapterConfig(std::string path, Json json) : path_(std::move(path)), json_(std::move(json)) {}

  Json At(const char* field) const {
    const auto found = json_.find(field);
    return found == json_.end() ? Json() : *found;
  }
  absl::Status Error(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", what));
  }
  absl::Status NotSupported(const char* field) const {
    return Error(absl::StrCat(field, " is ", At(field).dump(), ", which Snug does not compute"));
  }
  absl::Status Contradiction(const char* field, const std::string& wanted) const {
    return Error(absl::StrCat(field, " is ", At(field).dump(), ", the job asks for ", wanted,
                              "; leave lora.", field, " out to go on with the adapter's"));
  }

  std::string path_;
  Json json_;
};

}  // namespace

absl::Status InheritAdapter(v1::LoraSpec& lora) {
  ASSIGN_OR_RETURN(const AdapterConfig config,
                   AdapterConfig::Read(lora.init_adapter() + "/adapter_config.json"));
  RETURN_IF_ERROR(config.CheckSupported());
  RETURN_IF_ERROR(config.InheritRank(lora));
  RETURN_IF_ERROR(config.InheritScale(lora));
  return config.InheritModules(lora);
}

}  // namespace snug::server
