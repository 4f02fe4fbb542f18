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
constexpr char kDown[] = ".lora_A.weight";
constexpr char kUp[] = ".lora_B.weight";
constexpr char kEmbeddingDown[] = ".lora_embedding_A";
constexpr char kEmbeddingUp[] = ".lora_embedding_B";
constexpr char kWhole[] = ".weight", kBias[] = ".bias";

struct Halves {
  int64_t down_rank = 0;  // 0: not there.
  int64_t up_rank = 0;
};

// A whole number as PEFT's users write it, 32 and not 32.0.
ordered_json Number(double value) {
  if (std::trunc(value) == value && std::abs(value) < 1e15) return static_cast<int64_t>(value);
  return value;
}

absl::StatusOr<int64_t> RankOf(const TensorBytes& tensor, bool down) {
  if (tensor.dtype != "F32") {
    return absl::InvalidArgumentError(
        absl::StrCat(tensor.key, ": adapters are saved as F32, not ", tensor.dtype));
  }
  if (tensor.shape.size() == 2 && tensor.shape[down ? 0 : 1] > 0) return tensor.shape[down ? 0 : 1];
  return absl::InvalidArgumentError(absl::StrCat(
      tensor.key, ": [", absl::StrJoin(tensor.shape, ", "), "] is no half of an adapter"));
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

int64_t AdapterContents::largest_rank() const {
  int64_t largest = 0;
  for (const auto& [path, rank] : adapted) largest = std::max(largest, rank);
  return largest;
}

absl::StatusOr<AdapterContents> ContentsOf(const std::vector<TensorBytes>& adapter) {
  std::map<std::string, Halves> modules;
  std::set<std::string> saved;  // A weight and its bias are of one module.
  AdapterContents contents;
  for (const TensorBytes& tensor : adapter) {
    absl::string_view path = tensor.key;
    const bool named = absl::ConsumePrefix(&path, program::kAdapterPrefix);
    const bool down =
        absl::ConsumeSuffix(&path, kDown) || absl::ConsumeSuffix(&path, kEmbeddingDown);
    if (named && !path.empty() &&
        (down || absl::ConsumeSuffix(&path, kUp) || absl::ConsumeSuffix(&path, kEmbeddingUp))) {
      Halves& halves = modules[std::string(path)];
      ASSIGN_OR_RETURN((down ? halves.down_rank : halves.up_rank), RankOf(tensor, down));
      continue;
    }
    if (!named || path.empty() ||
        !(absl::ConsumeSuffix(&path, kWhole) || absl::ConsumeSuffix(&path, kBias))) {
      return absl::InvalidArgumentError(absl::StrCat(
          program::Quote(tensor.key), " is no key of a PEFT adapter: ", program::kAdapterPrefix,
          "...", kDown, " or ", kUp, ", or the path of a module's ", kWhole, " or ", kBias));
    }
    saved.emplace(path);
  }
  contents.saved.assign(saved.begin(), saved.end());
  for (const auto& [path, halves] : modules) {
    const auto& [down, up] = halves;
    if (down == 0 || up == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(program::kAdapterPrefix, path, down > 0 ? kUp : kDown, " is missing"));
    }
    if (down != up) {
      return absl::InvalidArgumentError(absl::StrCat(program::kAdapterPrefix, path, ": ranks ",
                                                     down, " and ", up, " of its halves"));
    }
    contents.adapted[path] = down;
  }
  if (!contents.adapted.empty()) return contents;
  return absl::InvalidArgumentError("an adapter without tensors");
}

std::vector<std::string> TargetModules(const program::LoraConfig& lora,
                                       const AdapterContents& contents) {
  const auto& given = lora.target_modules;
  std::set<std::string> names(given.begin(), given.end());
  if (names.erase(program::kAllLinear) > 0) {
    for (const auto& [path, rank] : contents.adapted)
      names.insert(path.substr(path.rfind('.') + 1));
  }
  return {names.begin(), names.end()};
}

namespace {

// A list, or PEFT's string for a regular expression; none is null.
ordered_json NamesJson(const std::vector<std::string>& names) {
  if (names.empty()) return nullptr;
  return program::IsRegex(names) ? ordered_json(names.front()) : ordered_json(names);
}

ordered_json NumbersJson(const std::map<std::string, double>& pattern) {
  ordered_json object = ordered_json::object();
  for (const auto& [key, value] : pattern) object[key] = Number(value);
  return object;
}

template <typename List>
ordered_json ListOrNull(const List& list) {
  return list.empty() ? ordered_json(nullptr) : ordered_json(list);
}

// What is not one value for all modules.
std::string OptionsText(const program::LoraConfig& lora, const AdapterContents& contents) {
  std::string text;
  const auto list = [&text](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) absl::StrAppend(&text, "\n- ", what, ": ", absl::StrJoin(names, ", "));
  };
  list("trained whole beside the adapter", contents.saved);
  list("left out", lora.exclude_modules);
  const auto number = absl::PairFormatter(" ");
  if (!lora.rank_pattern.empty())
    absl::StrAppend(&text, "\n- other ranks: ", absl::StrJoin(lora.rank_pattern, ", ", number));
  if (!lora.alpha_pattern.empty())
    absl::StrAppend(&text, "\n- other alphas: ", absl::StrJoin(lora.alpha_pattern, ", ", number));
  return text;
}

}  // namespace

absl::StatusOr<std::string> AdapterConfigText(const ExportOptions& options,
                                              const AdapterContents& contents, bool tied) {
  const program::LoraConfig& lora = options.lora;
  const std::vector<std::string> targets = TargetModules(lora, contents);
  const bool tied_saved = tied && std::find(contents.saved.begin(), contents.saved.end(),
                                            program::kEmbeddingPath) != contents.saved.end();
  const ordered_json config = {{"alora_invocation_tokens", nullptr},
                               {"alpha_pattern", NumbersJson(lora.alpha_pattern)},
                               {"arrow_config", nullptr},
                               {"auto_mapping", nullptr},
                               {"base_model_name_or_path", options.base_model_name},
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
                               {"layers_to_transform", ListOrNull(lora.layers_to_transform)},
                               {"loftq_config", ordered_json::object()},
                               {"lora_alpha", Number(lora.alpha)},
                               {"lora_bias", false},
                               {"lora_dropout", lora.dropout},
                               {"lora_ga_config", nullptr},
                               {"megatron_config", nullptr},
                               {"megatron_core", "megatron.core"},
                               {"modules_to_save", ListOrNull(lora.modules_to_save)},
                               {"monteclora_config", nullptr},
                               {"peft_type", "LORA"},
                               {"peft_version", kPeftVersion},
                               {"qalora_group_size", 16},
                               {"r", lora.rank},
                               {"rank_pattern", ordered_json(lora.rank_pattern)},
                               {"revision", nullptr},
                               {"target_modules", NamesJson(targets)},
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

namespace {

// The line of code without which the base is too small.
std::string ResizeText(const ExportOptions& options) {
  if (options.vocabulary == 0) return "";
  return absl::StrCat("base.resize_token_embeddings(", options.vocabulary,
                      ")  # for added tokens; the tokenizer here has them\n");
}

}  // namespace

absl::StatusOr<std::string> AdapterReadmeText(const ExportOptions& options,
                                              const AdapterContents& contents,
                                              const std::vector<ReaderReport>& readers) {
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
      contents.adapted.size(),
      " adapted modules: ", absl::StrJoin(TargetModules(lora, contents), ", "),
      OptionsText(lora, contents),
      "\n- weights in fp32; `metrics.jsonl` has the training's losses\n\n",
      "```python\nfrom peft import PeftModel\nfrom transformers import AutoModelForCausalLM\n\n",
      "base = AutoModelForCausalLM.from_pretrained(BASE)\n", ResizeText(options),
      "model = PeftModel.from_pretrained(base, THIS_FOLDER)\n```\n\n", "### Where it loads\n\n",
      CompatibilityTable(readers), "\n### Framework versions\n\n- PEFT ", kPeftVersion, "\n");
}

}  // namespace snug::checkpoint
