// A job file of another tool as one of ours: settings that we have under our names, and a comment
// for each that has no place here, with the reason.
//
// Most names are known to job files anyway (proto/snug/other_names.h). What a tool means otherwise,
// or says in a form of its own (datasets, methods), is in import_tools.cc and import_datasets.cc.
#ifndef CLIENT_IMPORTER_H_
#define CLIENT_IMPORTER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/snug/yaml_node.h"

namespace snug::client {

enum class Tool { kAxolotl, kLlamaFactory, kTrl, kOpenAi };
const char* NameOf(Tool tool);

// By the names that only one of them has. Null pointer semantics are those of "not one of them".
absl::StatusOr<Tool> ToolOf(const YamlNode& file);

// A job file in the making.
class JobDraft {
 public:
  // A setting by its path ("training.max_steps") and its value as YAML spells it. The first one
  // that is given stays.
  void Set(const std::string& path, const YamlNode& value);
  void SetText(const std::string& path, const std::string& value);
  void SetYaml(const std::string& path, const std::string& yaml);
  bool Has(const std::string& path) const;
  bool IsLora() const;

  // A key that has no place.
  void Note(const std::string& key, const YamlNode& value, absl::string_view why);
  // A remark that stands at the top.
  void Remark(absl::string_view text);

  // The job file. Settings that it would refuse become notes.
  std::string Text(absl::string_view from) const;

 private:
  struct Setting {
    std::string path;
    std::string yaml;
  };
  std::string Body(const std::vector<Setting>& settings) const;

  std::vector<Setting> settings_;
  std::vector<std::string> notes_;
  std::vector<std::string> remarks_;
};

// A node as YAML in one line: {a: 1, b: [x, y]}. Text is quoted where it must be.
std::string FlowYaml(const YamlNode& node);
std::string QuotedYaml(const std::string& text);

const YamlNode* Find(const YamlNode& mapping, absl::string_view key);
std::string Scalar(const YamlNode* node);  // Empty for null and for what is none.

// Takes a key that the tool has in a form of its own; false: the key is none of these. `folder`:
// the file's, for what lies beside it.
bool TakeToolKey(Tool tool, const YamlEntry& entry, const YamlNode& file, const std::string& folder,
                 JobDraft& draft);
// What the tool does when nothing is said.
void FillToolDefaults(Tool tool, const YamlNode& file, JobDraft& draft);

// The datasets of the tool's file; see import_datasets.cc for which keys these are.
bool TakeDatasetKey(Tool tool, const YamlEntry& entry, const YamlNode& file,
                    const std::string& folder, JobDraft& draft);

// The whole of it. `file` is the text's name, in errors and in the first comment.
absl::StatusOr<std::string> ImportJob(absl::string_view text, const std::string& file);

}  // namespace snug::client

#endif  // CLIENT_IMPORTER_H_
