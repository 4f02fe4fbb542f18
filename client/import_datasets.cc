// The datasets of other tools' job files:
//   axolotl         datasets, test_datasets: [{path, type, split, name, ...}]
//   LLaMA-Factory   dataset, eval_dataset: names that dataset_info.json in dataset_dir explains
//   TRL             dataset_name, dataset_config, dataset_train_split, ..., or datasets
//   OpenAI          training_file, validation_file: ids of files that were uploaded
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/importer.h"

namespace snug::client {
namespace {

namespace fs = std::filesystem;

// One dataset by our names, "path" first.
struct Dataset {
  std::vector<std::pair<std::string, std::string>> settings;  // The value as YAML.

  void Add(const std::string& key, const std::string& value) {
    if (!value.empty()) settings.emplace_back(key, QuotedYaml(value));
  }
  void AddColumns(const std::vector<std::pair<std::string, std::string>>& columns) {
    std::vector<std::string> parts;
    for (const auto& [ours, theirs] : columns)
      if (!theirs.empty() && ours != theirs)
        parts.push_back(absl::StrCat(ours, ": ", QuotedYaml(theirs)));
    if (!parts.empty())
      settings.emplace_back("columns", absl::StrCat("{", absl::StrJoin(parts, ", "), "}"));
  }
};

// One dataset has its settings beside it; several are a list.
void SetDatasets(const std::vector<Dataset>& datasets, JobDraft& draft) {
  if (datasets.size() == 1) {
    static const auto& names = *new std::map<std::string, std::string>{
        {"path", "dataset"}, {"split", "dataset_split"}, {"config", "dataset_config"}};
    for (const auto& [key, yaml] : datasets[0].settings) {
      const auto found = names.find(key);
      draft.SetYaml(found == names.end() ? key : found->second, yaml);
    }
    return;
  }
  std::string list;
  for (const Dataset& dataset : datasets) {
    std::vector<std::string> parts;
    for (const auto& [key, yaml] : dataset.settings) parts.push_back(absl::StrCat(key, ": ", yaml));
    absl::StrAppend(&list, "\n  - {", absl::StrJoin(parts, ", "), "}");
  }
  if (!datasets.empty()) draft.SetYaml("datasets", list);
}

// axolotl's types of rows that are ours; others make prompts of their own.
std::string FormatOfType(const std::string& type) {
  static const auto& formats = *new std::map<std::string, std::string>{
      {"alpaca", "alpaca"}, {"sharegpt", "sharegpt"}, {"completion", "text"},
      {"pretrain", "text"}, {"chat_template", ""},    {"", ""}};
  const auto found = formats.find(type);
  return found == formats.end() ? "?" : found->second;
}

// `type` with fields of the user's own, or one of axolotl's names.
void AddType(const YamlNode& source, Dataset& dataset, JobDraft& draft) {
  const YamlNode* type = Find(source, "type");
  if (type != nullptr && type->kind == YamlNode::Kind::kMapping) {
    dataset.AddColumns({{"instruction", Scalar(Find(*type, "field_instruction"))},
                        {"input", Scalar(Find(*type, "field_input"))},
                        {"output", Scalar(Find(*type, "field_output"))},
                        {"system", Scalar(Find(*type, "field_system"))}});
    if (Find(*type, "format") != nullptr)
      draft.Note("datasets[].type.format", *Find(*type, "format"),
                 "instruction, input and output are rendered by the chat template");
    return;
  }
  const std::string name = Scalar(type);
  const std::string format = FormatOfType(name);
  if (format == "?")
    draft.Note("datasets[].type", *type,
               "the first row tells what the rows are; this prompt of axolotl's is not known");
  else
    dataset.Add("dataset_format", format);
  const std::string field = Scalar(Find(source, "field_messages"));
  if (name == "chat_template" && field != "conversations" && field != "messages")
    dataset.AddColumns({{"messages", field}});
  if (name == "completion") dataset.AddColumns({{"text", Scalar(Find(source, "field"))}});
}

// Of "train[:10%]" the split; what part of it is for max_samples to say.
std::string SplitOf(const YamlNode& source, JobDraft& draft) {
  const std::string split = Scalar(Find(source, "split"));
  const size_t part = split.find('[');
  if (part == std::string::npos) return split;
  draft.Note("datasets[].split", *Find(source, "split"),
             "a part of a split: the whole is taken; max_samples takes its first rows");
  return split.substr(0, part);
}

// Keys of an axolotl dataset that say nothing about the rows, or are read above.
bool IsRead(const std::string& key) {
  for (const char* read :
       {"path", "type", "split", "name", "ds_type", "data_files", "field_messages", "field",
        "train_on_split", "trust_remote_code", "message_property_mappings", "revision"})
    if (key == read) return true;
  return false;
}

Dataset AxolotlDataset(const YamlNode& source, JobDraft& draft) {
  Dataset dataset;
  const YamlNode* files = Find(source, "data_files");
  const std::string file = files && !files->items.empty() && files->items.size() == 1
                               ? Scalar(&files->items.front())
                               : Scalar(files);
  dataset.Add("path", file.empty() ? Scalar(Find(source, "path")) : file);
  dataset.Add("split", SplitOf(source, draft));
  dataset.Add("config", Scalar(Find(source, "name")));
  AddType(source, dataset, draft);
  if (files != nullptr && files->items.size() > 1)
    draft.Note("datasets[].data_files", *files, "give a pattern: data/*.jsonl");
  for (const YamlEntry& entry : source.entries)
    if (!IsRead(entry.key) && entry.value.kind != YamlNode::Kind::kNull)
      draft.Note(absl::StrCat("datasets[].", entry.key), entry.value,
                 "what is trained of a row follows from its format and its weights");
  return dataset;
}

bool TakeAxolotl(const YamlEntry& entry, JobDraft& draft) {
  if (entry.key != "datasets" && entry.key != "test_datasets") return false;
  std::vector<Dataset> datasets;
  for (const YamlNode& source : entry.value.items)
    datasets.push_back(AxolotlDataset(source, draft));
  if (entry.key == "datasets") {
    SetDatasets(datasets, draft);
  } else if (!datasets.empty()) {
    const YamlNode& first = entry.value.items.front();
    draft.SetText("eval_dataset", Scalar(Find(first, "path")));
    if (const std::string split = SplitOf(first, draft); !split.empty())
      draft.SetText("eval_dataset_split", split);
    if (datasets.size() > 1)
      draft.Note(entry.key, entry.value, "there is one eval_dataset: the first of these");
  }
  return true;
}

// What explains the names of LLaMA-Factory's datasets; null when it is not there.
YamlNode DatasetInfo(const YamlNode& file, const std::string& folder) {
  const std::string dir = Scalar(Find(file, "dataset_dir"));
  const fs::path base = fs::path(folder) / (dir.empty() ? "data" : dir);
  std::ifstream stream(base / "dataset_info.json");
  std::ostringstream text;
  if (!stream || !(text << stream.rdbuf())) return {};
  absl::StatusOr<YamlNode> info = ReadYaml(text.str(), "dataset_info.json");
  return info.ok() ? *info : YamlNode{};
}

void AddFormat(const YamlNode& about, Dataset& dataset) {
  const YamlNode* columns = Find(about, "columns");
  const auto column = [&](const char* name) {
    return columns == nullptr ? std::string() : Scalar(Find(*columns, name));
  };
  if (Scalar(Find(about, "formatting")) == "sharegpt") {
    const YamlNode* tags = Find(about, "tags");
    const bool openai = tags != nullptr && Scalar(Find(*tags, "role_tag")) == "role";
    dataset.Add("dataset_format", openai ? "messages" : "sharegpt");
    dataset.AddColumns({{openai ? "messages" : "conversations", column("messages")},
                        {"system", column("system")},
                        {"tools", column("tools")}});
    return;
  }
  dataset.Add("dataset_format", "alpaca");
  dataset.AddColumns({{"instruction", column("prompt")},
                      {"input", column("query")},
                      {"output", column("response")},
                      {"system", column("system")},
                      {"history", column("history")}});
}

// A dataset by its name in dataset_info.json; else the name itself.
Dataset LlamaFactoryDataset(const std::string& name, const YamlNode& info, const YamlNode& file) {
  Dataset dataset;
  const YamlNode* about = Find(info, name);
  if (about == nullptr) {
    dataset.Add("path", name);
  } else {
    const std::string dir = Scalar(Find(file, "dataset_dir"));
    const std::string local = Scalar(Find(*about, "file_name"));
    const std::string path = (fs::path(dir.empty() ? "data" : dir) / local).string();
    dataset.Add("path", local.empty() ? Scalar(Find(*about, "hf_hub_url")) : path);
    dataset.Add("split", Scalar(Find(*about, "split")));
    dataset.Add("config", Scalar(Find(*about, "subset")));
    AddFormat(*about, dataset);
  }
  if (const YamlNode* most = Find(file, "max_samples"))
    dataset.settings.emplace_back("max_samples", FlowYaml(*most));
  return dataset;
}

bool TakeLlamaFactory(const YamlEntry& entry, const YamlNode& file, const std::string& folder,
                      JobDraft& draft) {
  if (entry.key == "max_samples" || entry.key == "dataset_dir") return true;  // Of each dataset.
  if (entry.key != "dataset" && entry.key != "eval_dataset") return false;
  const YamlNode info = DatasetInfo(file, folder);
  std::vector<std::string> names;
  for (const YamlNode& item : entry.value.items) names.push_back(Scalar(&item));
  if (names.empty()) names = absl::StrSplit(Scalar(&entry.value), ',', absl::SkipWhitespace());
  std::vector<Dataset> datasets;
  for (const std::string& name : names) {
    const std::string plain(absl::StripAsciiWhitespace(name));
    if (Find(info, plain) == nullptr)
      draft.Remark(absl::StrCat("\"", plain,
                                "\" is a name of LLaMA-Factory's dataset_info.json, "
                                "which is not beside this file: give its path."));
    datasets.push_back(LlamaFactoryDataset(plain, info, file));
  }
  if (entry.key == "dataset") {
    SetDatasets(datasets, draft);
  } else if (!datasets.empty()) {
    for (const auto& [key, yaml] : datasets.front().settings)
      if (key == "path") draft.SetYaml("eval_dataset", yaml);
    if (datasets.size() > 1)
      draft.Note(entry.key, entry.value, "there is one eval_dataset: the first of these");
  }
  return true;
}

Dataset TrlDataset(const YamlNode& source) {
  Dataset dataset;
  const std::string file = Scalar(Find(source, "data_files"));
  dataset.Add("path", file.empty() ? Scalar(Find(source, "path")) : file);
  dataset.Add("split", Scalar(Find(source, "split")));
  dataset.Add("config", Scalar(Find(source, "name")));
  return dataset;
}

bool TakeTrl(const YamlEntry& entry, const YamlNode& file, JobDraft& draft) {
  const std::string value = Scalar(&entry.value);
  if (entry.key == "dataset_name") {
    draft.SetText("dataset", value);
  } else if (entry.key == "dataset_train_split") {
    if (value != "train") draft.SetText("dataset_split", value);
  } else if (entry.key == "eval_strategy") {
    // Where it evaluates it does so on the split "test", unless another one is named.
    const std::string split = Scalar(Find(file, "dataset_test_split"));
    if (!value.empty() && value != "no" && Find(file, "dataset_name") != nullptr)
      draft.SetText("eval_dataset_split", split.empty() ? "test" : split);
    return false;  // The strategy is a setting as well.
  } else if (entry.key == "dataset_test_split") {
    return true;
  } else if (entry.key == "dataset_text_field") {
    if (value != "text") draft.SetYaml("columns", absl::StrCat("{text: ", QuotedYaml(value), "}"));
  } else if (entry.key == "datasets") {
    std::vector<Dataset> datasets;
    for (const YamlNode& source : entry.value.items) datasets.push_back(TrlDataset(source));
    SetDatasets(datasets, draft);
  } else if (entry.key == "dataset_streaming") {
    return true;  // Rows are prepared in parts anyway.
  } else {
    return false;
  }
  return true;
}

bool TakeOpenAi(const YamlEntry& entry, JobDraft& draft) {
  const std::string value = Scalar(&entry.value);
  const bool training = entry.key == "training_file";
  if (!training && entry.key != "validation_file") return false;
  if (value.empty()) return true;
  const std::string ours = training ? "dataset" : "eval_dataset";
  if (absl::StartsWith(value, "file-"))
    draft.Note(entry.key, entry.value,
               absl::StrCat("a file that was uploaded to OpenAI: give its path as ", ours));
  else
    draft.SetText(ours, value);
  return true;
}

}  // namespace

bool TakeDatasetKey(Tool tool, const YamlEntry& entry, const YamlNode& file,
                    const std::string& folder, JobDraft& draft) {
  switch (tool) {
    case Tool::kAxolotl:
      return TakeAxolotl(entry, draft);
    case Tool::kLlamaFactory:
      return TakeLlamaFactory(entry, file, folder, draft);
    case Tool::kTrl:
      return TakeTrl(entry, file, draft);
    case Tool::kOpenAi:
      return TakeOpenAi(entry, draft);
  }
  return false;
}

}  // namespace snug::client
