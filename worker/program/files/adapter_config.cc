#include "worker/program/files/adapter_config.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/program/files/json.h"

namespace snug::program {
namespace {

using Json = nlohmann::json;

// Fields of PEFT's LoraConfig that change what an adapter computes and that are not computed here.
// Each must be absent or say nothing: null, false, empty.
constexpr const char* kMustSayNothing[] = {"alora_invocation_tokens",
                                           "fan_in_fan_out",
                                           "layer_replication",
                                           "layers_pattern",
                                           "lora_bias",
                                           "target_parameters",
                                           "trainable_token_indices",
                                           "use_bdlora",
                                           "use_dora",
                                           "use_qalora"};

// Initialisations that leave the base's weights as they are. The others (pissa, olora, corda,
// loftq) move a part of them into the adapter, which then fits no plain base.
constexpr const char* kPlainInitialisations[] = {"gaussian", "eva", "orthogonal"};

bool SaysNothing(const Json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  return value.is_null() || value == "" || (value.is_structured() && value.empty());
}

class Reader {
 public:
  Reader(const std::string& path, Json json) : path_(path), json_(std::move(json)) {}

  absl::StatusOr<AdapterConfig> Read() const {
    RETURN_IF_ERROR(CheckSupported());
    AdapterConfig config;
    config.names_targets = !At("target_modules").is_null();
    ASSIGN_OR_RETURN(config.ties_weights, Flag("ensure_weight_tying"));
    RETURN_IF_ERROR(ReadNumbers(config.lora));
    ASSIGN_OR_RETURN(config.lora.target_modules, Names("target_modules"));
    ASSIGN_OR_RETURN(config.lora.exclude_modules, Names("exclude_modules"));
    ASSIGN_OR_RETURN(config.lora.modules_to_save, Names("modules_to_save"));
    RETURN_IF_ERROR(ReadLayers(config.lora));
    RETURN_IF_ERROR(ReadPatterns(config.lora));
    return config;
  }

 private:
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

  absl::Status ReadNumbers(LoraConfig& lora) const {
    const Json rank = At("r"), alpha = At("lora_alpha");
    if (!IsRank(rank)) return Error(absl::StrCat("r is missing or outside 1 to ", kMaxAdapterRank));
    lora.rank = rank.get<int64_t>();
    if (!IsAlpha(alpha)) return Error("lora_alpha is missing or not above 0");
    lora.alpha = alpha.get<double>();
    ASSIGN_OR_RETURN(lora.rslora, Flag("use_rslora"));
    const Json dropout = At("lora_dropout");
    if (dropout.is_null()) return absl::OkStatus();
    if (!dropout.is_number() || dropout < 0.0 || dropout >= 1.0)
      return NotSupported("lora_dropout");
    lora.dropout = dropout.get<double>();
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Flag(const char* field) const {
    const Json value = At(field);
    if (value.is_null()) return false;
    if (!value.is_boolean()) return NotSupported(field);
    return value.get<bool>();
  }

  // A list, or a string for one regular expression (or all-linear).
  absl::StatusOr<std::vector<std::string>> Names(const char* field) const {
    const Json value = At(field);
    if (SaysNothing(value)) return std::vector<std::string>{};
    if (value.is_string()) {
      std::vector<std::string> one = {value.get<std::string>()};
      if (one.front() == kAllLinear || IsRegex(one)) return one;
      return Error(absl::StrCat(field, " is the text ", value.dump(),
                                ", which PEFT matches against whole paths; give a list of names"));
    }
    if (!value.is_array()) return NotSupported(field);
    std::vector<std::string> names;
    for (const Json& name : value) {
      if (!name.is_string()) return NotSupported(field);
      names.push_back(name.get<std::string>());
    }
    // Of a list even this is a name, and that of no module.
    if (IsRegex(names)) return NotSupported(field);
    return names;
  }

  // PEFT takes one number for a list of it.
  absl::Status ReadLayers(LoraConfig& lora) const {
    const Json value = At("layers_to_transform");
    if (value.is_null()) return absl::OkStatus();
    for (const Json& layer : value.is_array() ? value : Json::array({value})) {
      if (!layer.is_number_integer()) return NotSupported("layers_to_transform");
      lora.layers_to_transform.push_back(layer.get<int64_t>());
    }
    return absl::OkStatus();
  }

  absl::Status ReadPatterns(LoraConfig& lora) const {
    const Json ranks = At("rank_pattern"), alphas = At("alpha_pattern");
    if (!ranks.is_null() && !ranks.is_object()) return NotSupported("rank_pattern");
    if (!alphas.is_null() && !alphas.is_object()) return NotSupported("alpha_pattern");
    for (const auto& [pattern, rank] : ranks.items()) {
      if (!IsRank(rank)) return NotSupported("rank_pattern");
      lora.rank_pattern[pattern] = rank.get<int64_t>();
    }
    for (const auto& [pattern, alpha] : alphas.items()) {
      if (!IsAlpha(alpha)) return NotSupported("alpha_pattern");
      lora.alpha_pattern[pattern] = alpha.get<double>();
    }
    return absl::OkStatus();
  }

  static bool IsRank(const Json& value) {
    return value.is_number_integer() && value >= 1 && value <= kMaxAdapterRank;
  }
  static bool IsAlpha(const Json& value) { return value.is_number() && value.get<double>() > 0.0; }

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

  const std::string& path_;
  const Json json_;
};

}  // namespace

namespace {

absl::StatusOr<AdapterConfig> ConfigOf(Json json, const std::string& path) {
  if (!json.is_object())
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a JSON object"));
  return Reader(path, std::move(json)).Read();
}

}  // namespace

absl::StatusOr<AdapterConfig> ReadAdapterConfig(const std::string& path) {
  ASSIGN_OR_RETURN(Json json, ReadJsonFile(path, JsonLimits()));
  return ConfigOf(std::move(json), path);
}

absl::StatusOr<AdapterConfig> ParseAdapterConfig(const std::string& text, const std::string& path) {
  ASSIGN_OR_RETURN(Json json, ParseJson(text, path, JsonLimits()));
  return ConfigOf(std::move(json), path);
}

absl::StatusOr<TensorIndex> ReadAdapterIndex(const Program& program, const std::string& folder) {
  const std::string path = folder + "/adapter_config.json";
  ASSIGN_OR_RETURN(const AdapterConfig config, ReadAdapterConfig(path));
  ASSIGN_OR_RETURN(TensorIndex index, ReadSafetensorsHeader(folder + "/adapter_model.safetensors"));
  RETURN_IF_ERROR(CheckAdapter(program, index));
  const bool saves_both = program.config.tied_embeddings && SavesEmbedding(program);
  if (!saves_both || config.ties_weights) return index;
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": ensure_weight_tying is false, so that PEFT trained ", kEmbeddingPath, " and ",
      kHeadPath, " apart, which config.json of the model ties: Snug trains them as one"));
}

}  // namespace snug::program
