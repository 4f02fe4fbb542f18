#include "client/importer.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "proto/snug/other_names.h"
#include "proto/snug/status_macros.h"
#include "proto/snug/utf8.h"
#include "proto/snug/yaml.h"
#include "snug/v1/job.pb.h"

namespace snug::client {
namespace {

constexpr size_t kShownValue = 60;  // Bytes of a value in a comment.
constexpr const char* kSections[] = {"", "lora", "training", "memory"};

// Names that one tool alone has.
struct Mark {
  Tool tool;
  const char* key;
};
constexpr Mark kMarks[] = {
    {Tool::kAxolotl, "base_model"},
    {Tool::kAxolotl, "micro_batch_size"},
    {Tool::kAxolotl, "sequence_len"},
    {Tool::kLlamaFactory, "finetuning_type"},
    {Tool::kLlamaFactory, "cutoff_len"},
    {Tool::kLlamaFactory, "template"},
    {Tool::kLlamaFactory, "stage"},
    {Tool::kOpenAi, "training_file"},
    {Tool::kOpenAi, "hyperparameters"},
    {Tool::kTrl, "dataset_name"},
    {Tool::kTrl, "use_peft"},
    {Tool::kTrl, "dataset_train_split"},
    {Tool::kTrl, "model_name_or_path"},
};

std::string SectionOf(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

// YAML reads these as something else than text.
bool IsPlain(const std::string& text) {
  static const auto& words =
      *new std::set<std::string>{"true", "false", "null", "yes", "no", "on", "off", "~"};
  double number = 0;
  if (text.empty() || words.count(absl::AsciiStrToLower(text)) > 0) return false;
  if (absl::SimpleAtod(text, &number)) return false;
  if (!absl::ascii_isalnum(text.front()) && text.front() != '/' && text.front() != '.' &&
      text.front() != '_')
    return false;
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) ||
           absl::StrContains("_./@-+", absl::string_view(reinterpret_cast<const char*>(&c), 1));
  });
}

// Numbers and truth values stay as they were written, but for space around them.
std::string ScalarYaml(const std::string& text) {
  double number = 0;
  const std::string lower = absl::AsciiStrToLower(text);
  if (absl::SimpleAtod(text, &number)) return std::string(absl::StripAsciiWhitespace(text));
  return lower == "true" || lower == "false" ? text : QuotedYaml(text);
}

// "a, b" as a sequence.
std::string ListYaml(const std::string& text) {
  std::vector<std::string> parts;
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipWhitespace()))
    parts.push_back(ScalarYaml(std::string(absl::StripAsciiWhitespace(part))));
  return absl::StrCat("[", absl::StrJoin(parts, ", "), "]");
}

// As one line of a comment can have it: what stands behind a line break would be a setting.
std::string InLine(const std::string& text) {
  std::string line = ValidUtf8(text);
  for (char& c : line)
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = ' ';
  return line;
}

// What has no place, and why.
std::string NoteOf(const std::string& key, const std::string& value, const std::string& why) {
  return absl::StrCat("#   ", InLine(key), ": ", InLine(value), "\n#       ", InLine(why));
}

// The beginning of a long value, which ends with a whole character.
std::string Shortened(const std::string& value) {
  if (value.size() <= kShownValue) return value;
  size_t end = kShownValue;
  while (end > 0 && (static_cast<unsigned char>(value[end]) & 0xC0) == 0x80) --end;
  return value.substr(0, end) + "...";
}

// One top-level key of the tool's file.
void TakeKey(Tool tool, const YamlEntry& entry, const YamlNode& file, const std::string& folder,
             JobDraft& draft) {
  if (TakeToolKey(tool, entry, file, folder, draft)) return;
  if (entry.value.kind == YamlNode::Kind::kNull) return;
  const google::protobuf::Descriptor& root = *v1::JobSpec::descriptor();
  const std::string value = Scalar(&entry.value);
  const bool scalar = entry.value.kind == YamlNode::Kind::kScalar;
  const OurName ours = OurNameOf("", entry.key, scalar ? &value : nullptr, root);
  switch (ours.kind) {
    case OurName::Kind::kNothing:
      return;
    case OurName::Kind::kRefused:
      return draft.Note(entry.key, entry.value, ours.why);
    case OurName::Kind::kField:
      if (!ours.value.empty()) return draft.SetText(ours.path, ours.value);
      if (ours.commas && scalar && absl::StrContains(value, ','))
        return draft.SetYaml(ours.path, ListYaml(value));
      return draft.Set(ours.path, entry.value);
    case OurName::Kind::kUnknown:
      break;
  }
  // A section of ours has keys of its own: what another tool calls so is something else.
  const google::protobuf::FieldDescriptor* field = root.FindFieldByName(entry.key);
  const bool section = field != nullptr && !field->is_repeated() &&
                       field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE;
  if (field != nullptr && !section) return draft.Set(entry.key, entry.value);
  draft.Note(entry.key, entry.value, "no setting of this name is known here");
}

}  // namespace

const char* NameOf(Tool tool) {
  switch (tool) {
    case Tool::kAxolotl:
      return "axolotl";
    case Tool::kLlamaFactory:
      return "LLaMA-Factory";
    case Tool::kTrl:
      return "TRL";
    case Tool::kOpenAi:
      return "OpenAI";
  }
  return "";
}

absl::StatusOr<Tool> ToolOf(const YamlNode& file) {
  for (const Mark& mark : kMarks)
    if (Find(file, mark.key) != nullptr) return mark.tool;
  std::vector<std::string> keys;
  for (const Mark& mark : kMarks) keys.push_back(mark.key);
  return absl::InvalidArgumentError(
      absl::StrCat("is this a job file of axolotl, LLaMA-Factory, TRL or OpenAI? It has none of "
                   "their keys (",
                   absl::StrJoin(keys, ", "), ")"));
}

const YamlNode* Find(const YamlNode& mapping, absl::string_view key) {
  for (const YamlEntry& entry : mapping.entries)
    if (entry.key == key) return &entry.value;
  return nullptr;
}

std::string Scalar(const YamlNode* node) {
  return node == nullptr || node->kind != YamlNode::Kind::kScalar ? "" : node->scalar;
}

std::string QuotedYaml(const std::string& text) {
  if (IsPlain(text)) return text;
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string FlowYaml(const YamlNode& node) {
  std::vector<std::string> parts;
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "null";
    case YamlNode::Kind::kScalar:
      return ScalarYaml(node.scalar);
    case YamlNode::Kind::kSequence:
      for (const YamlNode& item : node.items) parts.push_back(FlowYaml(item));
      return absl::StrCat("[", absl::StrJoin(parts, ", "), "]");
    case YamlNode::Kind::kMapping:
      for (const YamlEntry& entry : node.entries)
        parts.push_back(absl::StrCat(QuotedYaml(entry.key), ": ", FlowYaml(entry.value)));
      return absl::StrCat("{", absl::StrJoin(parts, ", "), "}");
  }
  return "";
}

void JobDraft::Set(const std::string& path, const YamlNode& value) {
  SetYaml(path, FlowYaml(value));
}

void JobDraft::SetText(const std::string& path, const std::string& value) {
  SetYaml(path, ScalarYaml(value));
}

void JobDraft::SetYaml(const std::string& path, const std::string& yaml) {
  if (!Has(path)) settings_.push_back({path, yaml});
}

bool JobDraft::Has(const std::string& path) const {
  return std::any_of(settings_.begin(), settings_.end(),
                     [&](const Setting& setting) { return setting.path == path; });
}

bool JobDraft::IsLora() const {
  return std::any_of(settings_.begin(), settings_.end(), [](const Setting& setting) {
    return setting.path == "method" && setting.yaml == "lora";
  });
}

void JobDraft::Note(const std::string& key, const YamlNode& value, absl::string_view why) {
  notes_.push_back(NoteOf(key, Shortened(FlowYaml(value)), std::string(why)));
}

void JobDraft::Remark(absl::string_view text) {
  remarks_.push_back(absl::StrCat("# ", InLine(std::string(text))));
}

// Sections one behind another, each with its settings in the order in which they were given.
std::string JobDraft::Body(const std::vector<Setting>& settings) const {
  std::string body;
  for (const char* section : kSections) {
    const bool top = *section == '\0';
    bool begun = top;
    for (const Setting& setting : settings) {
      if (SectionOf(setting.path) != section) continue;
      if (!begun) absl::StrAppend(&body, section, ":\n");
      begun = true;
      const std::string key = setting.path.substr(setting.path.rfind('.') + 1);
      absl::StrAppend(&body, top ? "" : "  ", key, ":", setting.yaml.front() == '\n' ? "" : " ",
                      setting.yaml, "\n");
    }
  }
  return body;
}

std::string JobDraft::Text(absl::string_view from) const {
  std::vector<Setting> kept;
  std::vector<std::string> notes = notes_;
  const auto read_as_job = [this](const std::vector<Setting>& settings) {
    v1::JobSpec spec;
    return ParseYaml(Body(settings), "job", &spec);
  };
  const bool all_read = read_as_job(settings_).ok();
  for (const Setting& setting : settings_) {
    // By itself, and beside those before it: what comes of it is a job file.
    absl::Status read = all_read ? absl::OkStatus() : read_as_job({setting});
    kept.push_back(setting);
    if (read.ok() && !all_read) read = read_as_job(kept);
    if (read.ok()) continue;
    kept.pop_back();
    std::vector<std::string> whys;
    for (const YamlError& error : YamlErrors(read)) whys.push_back(error.message);
    notes.push_back(NoteOf(setting.path, setting.yaml, absl::StrJoin(whys, "; ")));
  }
  std::string text = absl::StrCat("# ", InLine(std::string(from)), "\n");
  for (const std::string& remark : remarks_) absl::StrAppend(&text, remark, "\n");
  absl::StrAppend(&text, Body(kept));
  if (!notes.empty())
    absl::StrAppend(&text, "\n# What has no place here, and why:\n", absl::StrJoin(notes, "\n"),
                    "\n");
  return text;
}

absl::StatusOr<std::string> ImportJob(absl::string_view text, const std::string& file) {
  ASSIGN_OR_RETURN(const YamlNode root, ReadYaml(text, file));
  if (root.kind != YamlNode::Kind::kMapping)
    return absl::InvalidArgumentError(absl::StrCat(file, " is no mapping of keys to values"));
  absl::StatusOr<Tool> tool = ToolOf(root);
  if (!tool.ok())
    return absl::Status(tool.status().code(), absl::StrCat(file, ": ", tool.status().message()));
  const std::filesystem::path path(file);
  JobDraft draft;
  for (const YamlEntry& entry : root.entries)
    TakeKey(*tool, entry, root, path.parent_path().string(), draft);
  FillToolDefaults(*tool, root, draft);
  return draft.Text(absl::StrCat("From ", path.filename().string(), " of ", NameOf(*tool), "."));
}

}  // namespace snug::client
