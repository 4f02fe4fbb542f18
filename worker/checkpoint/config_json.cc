#include "worker/checkpoint/config_json.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/checkpoint/read_file.h"
#include "worker/checkpoint/reversible_loader.h"
#include "worker/program/files/json.h"

namespace snug::checkpoint {

namespace {

using nlohmann::ordered_json;

// As transformers writes them: ids are keys, so they are text.
void NameLabels(const ConfigChanges& changes, ordered_json& config) {
  const auto known = config.find("id2label");
  const auto labels = static_cast<size_t>(changes.labels);
  const bool keeps = changes.label_names.empty() && known != config.end() && known->is_object() &&
                     known->size() == labels;
  config.erase("num_labels");
  if (keeps) return;
  ordered_json names = ordered_json::object(), ids = ordered_json::object();
  for (size_t id = 0; id < labels; ++id) {
    const std::string name =
        id < changes.label_names.size() ? changes.label_names[id] : absl::StrCat("LABEL_", id);
    names[absl::StrCat(id)] = name;
    ids[name] = id;
  }
  config["id2label"] = std::move(names);
  config["label2id"] = std::move(ids);
}

}  // namespace

ConfigChanges ChangesOf(const program::ModelConfig& config,
                        const std::vector<std::string>& label_names) {
  ConfigChanges changes;
  if (config.adds_tokens()) changes.vocabulary = config.vocabulary;
  if (config.reversible) changes.members = ReversibleMembers(config);
  // Files of masked tokens may be those of a class with more heads.
  if (config.classifies() || config.task == program::Task::kMaskedLm)
    changes.architecture = program::ArchitectureOf(config);
  if (!config.classifies()) return changes;
  changes.labels = config.labels;
  if (config.task == program::Task::kSequenceClassification)
    changes.problem = program::NameOf(config.problem);
  changes.label_names = label_names;
  return changes;
}

absl::StatusOr<nlohmann::ordered_json> ConfigOfExport(const std::string& model_dir,
                                                      const ConfigChanges& changes) {
  const std::string path = model_dir + "/config.json";
  // For its limits and its errors; it does not keep the order.
  RETURN_IF_ERROR(program::ReadJsonFile(path, {}).status());
  ASSIGN_OR_RETURN(const OpenFile file, OpenFile::Open(path, Links::kFollow));
  std::string text(file.bytes(), '\0');
  RETURN_IF_ERROR(file.Read(0, file.bytes(), text.data()));
  auto config = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return absl::InvalidArgumentError(path + ": not a JSON object");
  for (const char* name : {"dtype", "torch_dtype"}) {
    if (changes.dtype.empty() || !config.contains(name)) continue;
    config[name] = changes.dtype == "F32" ? "float32" : "bfloat16";
  }
  if (changes.vocabulary > 0) config["vocab_size"] = changes.vocabulary;
  config.update(changes.members);
  if (changes.architecture.empty()) return config;
  config["architectures"] = {changes.architecture};
  if (changes.labels == 0) return config;
  config.erase("problem_type");
  if (!changes.problem.empty()) config["problem_type"] = changes.problem;
  NameLabels(changes, config);
  return config;
}

}  // namespace snug::checkpoint
