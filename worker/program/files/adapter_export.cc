#include "worker/program/files/adapter_export.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/snug/status_macros.h"
#include "worker/program/files/base_model.h"
#include "worker/program/files/json_text.h"

namespace snug::program {
namespace {

using nlohmann::ordered_json;

// A whole number as PEFT's users write it, 32 and not 32.0.
ordered_json Number(double value) {
  if (std::trunc(value) == value && std::abs(value) < 1e15) return static_cast<int64_t>(value);
  return value;
}

// A list, or PEFT's string for a regular expression; none is null.
ordered_json NamesJson(const std::vector<std::string>& names) {
  if (names.empty()) return nullptr;
  return IsRegex(names) ? ordered_json(names.front()) : ordered_json(names);
}

ordered_json NumbersJson(const std::map<std::string, double>& pattern) {
  ordered_json object = ordered_json::object();
  for (const auto& [key, value] : pattern) object[key] = Number(value);
  return object;
}

template <typename Value>
ordered_json OrNull(const Value& value) {
  return value.empty() ? ordered_json(nullptr) : ordered_json(value);
}

// What tells two adapters apart: each tensor's key and shape, and the scale of each module.
std::vector<std::string> Fingerprint(const Program& program) {
  std::vector<std::string> lines;
  for (const Parameter& parameter : program.parameters) {
    if (!InAdapterFile(parameter)) continue;
    lines.push_back(absl::StrCat(AdapterFileKey(parameter), " of [",
                                 absl::StrJoin(parameter.shape, ", "), "]"));
  }
  for (const Block& block : program.blocks) {
    for (const Op& op : program.types[block.type].ops) {
      if (op.attributes.rank == 0) continue;  // Not adapted.
      lines.push_back(
          absl::StrCat(op.name, " of layer ", block.layer, " with scale ", op.attributes.scale));
    }
  }
  return lines;
}

}  // namespace

absl::StatusOr<std::string> AdapterConfigText(const LoraConfig& lora, const std::string& base_model,
                                              const AdapterContents& contents,
                                              const ModelConfig& model) {
  const std::vector<std::string> targets = TargetModules(lora, contents);
  const bool tied_saved = model.tied_embeddings &&
                          std::find(contents.saved.begin(), contents.saved.end(), kEmbeddingPath) !=
                              contents.saved.end();
  const BaseModel base = BaseModelOf(base_model);
  const ordered_json name = base.name.empty() ? ordered_json() : ordered_json(base.name);
  const ordered_json revision =
      base.revision.empty() ? ordered_json() : ordered_json(base.revision);
  const ordered_json config = {{"alora_invocation_tokens", nullptr},
                               {"alpha_pattern", NumbersJson(lora.alpha_pattern)},
                               {"arrow_config", nullptr},
                               {"auto_mapping", nullptr},
                               {"base_model_name_or_path", name},
                               {"bias", "none"},
                               {"corda_config", nullptr},
                               {"ensure_weight_tying", tied_saved},
                               {"eva_config", nullptr},
                               {"exclude_modules", NamesJson(lora.exclude_modules)},
                               {"fan_in_fan_out", false},
                               {"inference_mode", true},
                               {"init_lora_weights", true},
                               {"kasa_config", nullptr},
                               {"layer_replication", nullptr},
                               {"layers_pattern", nullptr},
                               {"layers_to_transform", OrNull(lora.layers_to_transform)},
                               {"loftq_config", ordered_json::object()},
                               {"lora_alpha", Number(lora.alpha)},
                               {"lora_bias", false},
                               {"lora_dropout", lora.dropout},
                               {"lora_ga_config", nullptr},
                               {"megatron_config", nullptr},
                               {"megatron_core", "megatron.core"},
                               {"modules_to_save", OrNull(lora.modules_to_save)},
                               {"monteclora_config", nullptr},
                               {"peft_type", "LORA"},
                               {"peft_version", kPeftVersion},
                               {"qalora_group_size", 16},
                               {"r", lora.rank},
                               {"rank_pattern", ordered_json(lora.rank_pattern)},
                               {"revision", revision},
                               {"target_modules", NamesJson(targets)},
                               {"target_parameters", nullptr},
                               {"task_type", OrNull(std::string(PeftTaskType(model.task)))},
                               {"trainable_token_indices", nullptr},
                               {"use_bdlora", nullptr},
                               {"use_dora", false},
                               {"use_qalora", false},
                               {"use_rslora", lora.rslora},
                               {"velora_config", nullptr}};
  return JsonText(config, kIndent);
}

absl::Status CheckAdapterConfig(const AdapterConfig& config, const std::string& path,
                                const Program& program) {
  const TrainingMode mode = {.lora = true, .adapter = config.lora, .compute = program.compute};
  const auto wrong = [&path](const std::string& what) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": ", what));
  };
  const absl::StatusOr<Program> read = BuildProgram(program.config, mode);
  if (!read.ok()) return wrong(std::string(read.status().message()));
  const std::vector<std::string> expected = Fingerprint(program), found = Fingerprint(*read);
  if (expected != found) {
    const auto [at, other] =
        std::mismatch(expected.begin(), expected.end(), found.begin(), found.end());
    return wrong(at == expected.end() ? absl::StrCat("names ", *other, ", which was not trained")
                                      : absl::StrCat("does not lead to ", *at));
  }
  return absl::OkStatus();
}

absl::Status CheckAdapterExport(const Program& program, const LoraConfig& lora,
                                const std::string& base_model) {
  const std::string path = "the adapter_config.json of the job's result";
  ASSIGN_OR_RETURN(const AdapterContents contents, ContentsOf(AdapterTensorsOf(program)));
  ASSIGN_OR_RETURN(const std::string text,
                   AdapterConfigText(lora, base_model, contents, program.config));
  ASSIGN_OR_RETURN(const AdapterConfig config, ParseAdapterConfig(text, path));
  return CheckAdapterConfig(config, path, program);
}

}  // namespace snug::program
