#include "server/job/inherit_adapter.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/snug/status_macros.h"
#include "server/job/check_lora.h"
#include "worker/program/files/adapter_config.h"

namespace snug::server {
namespace {

std::string Text(bool value) { return value ? "true" : "false"; }
std::string Text(double value) { return absl::StrCat(value); }
template <typename List>
std::string TextOfList(const List& list) {
  return absl::StrCat("[", absl::StrJoin(list, ", "), "]");
}
template <typename Map>
std::string TextOfMap(const Map& map) {
  return absl::StrCat("{", absl::StrJoin(map, ", ", absl::PairFormatter(": ")), "}");
}

// Fills one field after the other; the first that contradicts the job is what is reported.
class Inheritance {
 public:
  Inheritance(std::string path, v1::LoraSpec& lora) : path_(std::move(path)), lora_(lora) {}

  absl::Status Numbers(const program::LoraConfig& from) {
    if (lora_.has_r() && lora_.r() != from.rank)
      return Contradiction("r", absl::StrCat(from.rank), absl::StrCat(lora_.r()));
    lora_.set_r(static_cast<int32_t>(from.rank));
    if (lora_.has_lora_alpha() && lora_.lora_alpha() != from.alpha)
      return Contradiction("lora_alpha", Text(from.alpha), Text(lora_.lora_alpha()));
    lora_.set_lora_alpha(from.alpha);
    if (lora_.has_use_rslora() && lora_.use_rslora() != from.rslora)
      return Contradiction("use_rslora", Text(from.rslora), Text(lora_.use_rslora()));
    lora_.set_use_rslora(from.rslora);
    // Of the training, not of what the adapter computes: a job may go on with another.
    if (!lora_.has_lora_dropout()) lora_.set_lora_dropout(from.dropout);
    return absl::OkStatus();
  }

  absl::Status Modules(const program::LoraConfig& from) {
    RETURN_IF_ERROR(
        List("exclude_modules", from.exclude_modules, *lora_.mutable_exclude_modules()));
    RETURN_IF_ERROR(
        List("modules_to_save", from.modules_to_save, *lora_.mutable_modules_to_save()));
    return List("layers_to_transform", from.layers_to_transform,
                *lora_.mutable_layers_to_transform());
  }

  absl::Status Patterns(const program::LoraConfig& from) {
    RETURN_IF_ERROR(Map("rank_pattern", from.rank_pattern, *lora_.mutable_rank_pattern()));
    return Map("alpha_pattern", from.alpha_pattern, *lora_.mutable_alpha_pattern());
  }

  // Those that the job names itself are held against the adapter's tensors, later.
  void Targets(const program::AdapterConfig& from) {
    if (!lora_.target_modules().empty() || !from.names_targets) return;
    for (const std::string& name : from.lora.target_modules) lora_.add_target_modules(name);
  }

 private:
  template <typename From, typename To>
  absl::Status List(const char* field, const From& from, To& to) {
    const From given(to.begin(), to.end());
    if (!given.empty() && given != from)
      return Contradiction(field, TextOfList(from), TextOfList(given));
    to.Clear();
    for (const auto& value : from) *to.Add() = value;
    return absl::OkStatus();
  }

  template <typename From, typename To>
  absl::Status Map(const char* field, const From& from, To& to) {
    const From given(to.begin(), to.end());
    if (!given.empty() && given != from)
      return Contradiction(field, TextOfMap(from), TextOfMap(given));
    for (const auto& [pattern, value] : from)
      to[pattern] = static_cast<typename To::mapped_type>(value);
    return absl::OkStatus();
  }

  absl::Status Contradiction(const char* field, const std::string& has,
                             const std::string& wanted) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", field, " is ", has,
                                                   ", the job asks for ", wanted, "; leave lora.",
                                                   field, " out to go on with the adapter's"));
  }

  const std::string path_;
  v1::LoraSpec& lora_;
};

absl::Status InheritAll(const program::AdapterConfig& from, const std::string& where,
                        v1::LoraSpec& lora) {
  Inheritance inheritance(where, lora);
  RETURN_IF_ERROR(inheritance.Numbers(from.lora));
  RETURN_IF_ERROR(inheritance.Modules(from.lora));
  RETURN_IF_ERROR(inheritance.Patterns(from.lora));
  inheritance.Targets(from);
  return absl::OkStatus();
}

}  // namespace

absl::Status InheritAdapter(v1::LoraSpec& lora) {
  const std::string path = lora.init_adapter() + "/adapter_config.json";
  ASSIGN_OR_RETURN(const program::AdapterConfig config, program::ReadAdapterConfig(path));
  return InheritAll(config, path, lora);
}

absl::Status InheritLora(const v1::LoraSpec& from, const std::string& where, v1::LoraSpec& lora) {
  program::AdapterConfig config;
  config.lora = LoraConfigOf(from);
  return InheritAll(config, where, lora);
}

}  // namespace snug::server
