#include "worker/checkpoint/adapter_card.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "proto/snug/status_macros.h"
#include "worker/checkpoint/json_text.h"
#include "worker/program/json.h"

namespace snug::checkpoint {
namespace {

using nlohmann::ordered_json;

constexpr char kPeftVersion[] = "0.21.2";  // Whose format this is.
constexpr char kPrefix[] = "base_model.model.";
constexpr char kDown[] = ".lora_A.weight";
constexpr char kUp[] = ".lora_B.weight";

struct Halves {
  bool down = false;
  bool up = false;
};

// A whole number as PEFT's users write it, 32 and not 32.0.
ordered_json Number(double value) {
  if (std::trunc(value) == value && std::abs(value) < 1e15) return static_cast<int64_t>(value);
  return value;
}

absl::Status CheckAdapterTensor(const TensorBytes& tensor, bool down, int64_t rank) {
  if (tensor.dtype != "F32") {
    return absl::InvalidArgumentError(
        absl::StrCat(tensor.key, ": adapters are saved as F32, not ", tensor.dtype));
  }
  if (tensor.shape.size() != 2 || tensor.shape[down ? 0 : 1] != rank) {
    return absl::InvalidArgumentError(absl::StrCat(
        tensor.key, ": [", absl::StrJoin(tensor.shape, ", "), "] is not of rank ", rank));
  }
  return absl::OkStatus();
}

// A YAML scalar that no reader takes for a number, a boolean or two things. The names that do not
// need it stay as PEFT would write them.
absl::StatusOr<std::string> YamlText(const std::string& text) {
  const bool plain =
      absl::StrContains(text, '/') && std::all_of(text.begin(), text.end(), [](unsigned char c) {
        return std::isalnum(c) || c == '/' || c == '_' || c == '.' || c == '-';
      });
  if (plain && text.front() != '-') return text;
  return JsonText(text, kOneLine);
}

// One line of text, whatever the user's name for the job has in it.
std::string OneLine(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return text;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> AdaptedModules(const std::vector<TensorBytes>& adapter,
                                                        int64_t rank) {
  std::map<std::string, Halves> modules;
  for (const TensorBytes& tensor : adapter) {
    absl::string_view path = tensor.key;
    const bool named = absl::ConsumePrefix(&path, kPrefix);
    const bool down = absl::ConsumeSuffix(&path, kDown);
    if (!named || path.empty() || (!down && !absl::ConsumeSuffix(&path, kUp))) {
      return absl::InvalidArgumentError(absl::StrCat(program::Quote(tensor.key),
                                                     " is no key of a PEFT adapter: ", kPrefix,
                                                     "...", kDown, " or ", kUp));
    }
    RETURN_IF_ERROR(CheckAdapterTensor(tensor, down, rank));
    Halves& halves = modules[std::string(path)];
    (down ? halves.down : halves.up) = true;
  }
  std::vector<std::string> paths;
  for (const auto& [path, halves] : modules) {
    if (!halves.down || !halves.up) {
      return absl::InvalidArgumentError(
          absl::StrCat(kPrefix, path, halves.down ? kUp : kDown, " is missing"));
    }
    paths.push_back(path);
  }
  if (!paths.empty()) return paths;
  return absl::InvalidArgumentError("an adapter without tensors");
}

std::vector<std::string> TargetModules(const program::LoraConfig& lora,
                                       const std::vector<std::string>& adapted) {
  const auto& given = lora.target_modules;
  std::set<std::string> names(given.begin(), given.end());
  if (names.contains("all-linear")) {
    names.clear();
    for (const std::string& path : adapted) names.insert(path.substr(path.rfind('.') + 1));
  }
  return {names.begin(), names.end()};
}

bool IsTargeted(const std::string& module, const std::vector<std::string>& targets) {
  return std::any_of(targets.begin(), targets.end(), [&module](const std::string& target) {
    return module == target || absl::EndsWith(module, "." + target);
  });
}

absl::StatusOr<std::string> AdapterConfigText(const ExportOptions& options,
                                              const std::vector<std::string>& targets) {
  const program::LoraConfig& lora = options.lora;
  const ordered_json config = {{"alora_invocation_tokens", nullptr},
                               {"alpha_pattern", ordered_json::object()},
                               {"arrow_config", nullptr},
                               {"auto_mapping", nullptr},
                               {"base_model_name_or_path", options.base_model_name},
                               {"bias", "none"},
                               {"corda_config", nullptr},
                               {"ensure_weight_tying", false},
                               {"eva_config", nullptr},
                               {"exclude_modules", nullptr},
                               {"fan_in_fan_out", false},
                               {"inference_mode", true},
                               {"init_lora_weights", true},
                               {"kasa_config", nullptr},
                               {"layer_replication", nullptr},
                               {"layers_pattern", nullptr},
                               {"layers_to_transform", nullptr},
                               {"loftq_config", ordered_json::object()},
                               {"lora_alpha", Number(lora.alpha)},
                               {"lora_bias", false},
                               {"lora_dropout", lora.dropout},
                               {"lora_ga_config", nullptr},
                               {"megatron_config", nullptr},
                               {"megatron_core", "megatron.core"},
                               {"modules_to_save", nullptr},
                               {"monteclora_config", nullptr},
                               {"peft_type", "LORA"},
                               {"peft_version", kPeftVersion},
                               {"qalora_group_size", 16},
                               {"r", lora.rank},
                               {"rank_pattern", ordered_json::object()},
                               {"revision", nullptr},
                               {"target_modules", targets},
                               {"target_parameters", nullptr},
                               {"task_type", "CAUSAL_LM"},
                               {"trainable_token_indices", nullptr},
                               {"use_bdlora", nullptr},
                               {"use_dora", false},
                               {"use_qalora", false},
                               {"use_rslora", lora.rslora},
                               {"velora_config", nullptr}};
  return JsonText(config, kIndent);
}

absl::StatusOr<std::string> AdapterReadmeText(const ExportOptions& options,
                                              const std::vector<std::string>& targets,
                                              size_t adapted_modules) {
  const program::LoraConfig& lora = options.lora;
  const std::string& name = options.base_model_name;
  ASSIGN_OR_RETURN(const std::string base, YamlText(name));
  const std::string adapter_of = "base_model:adapter:" + name;
  ASSIGN_OR_RETURN(const std::string quoted, JsonText(adapter_of, kOneLine));
  const std::string title = options.display_name.empty() ? "LoRA adapter" : options.display_name;
  return absl::StrCat(
      "---\nbase_model: ", base, "\nlibrary_name: peft\npipeline_tag: text-generation\ntags:\n- ",
      base == name ? adapter_of : quoted, "\n- lora\n- transformers\n---\n\n# ", OneLine(title),
      "\n\nA LoRA adapter for `", OneLine(name), "`, trained with Snug.\n\n- rank ", lora.rank,
      ", alpha ", lora.alpha, ", dropout ", lora.dropout,
      lora.rslora ? ", scaled by alpha / sqrt(rank)" : ", scaled by alpha / rank", "\n- ",
      adapted_modules, " adapted modules: ", absl::StrJoin(targets, ", "),
      "\n- weights in fp32; `metrics.jsonl` has the training's losses\n\n",
      "```python\nfrom peft import PeftModel\nfrom transformers import AutoModelForCausalLM\n\n",
      "base = AutoModelForCausalLM.from_pretrained(BASE)\n",
      "model = PeftModel.from_pretrained(base, THIS_FOLDER)\n```\n\n",
      "### Framework versions\n\n- PEFT ", kPeftVersion, "\n");
}

}  // namespace snug::checkpoint
