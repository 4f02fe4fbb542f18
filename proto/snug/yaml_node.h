// A YAML document as a plain tree, so that one file alone meets yaml-cpp and its exceptions.
#ifndef PROTO_SNUG_YAML_NODE_H_
#define PROTO_SNUG_YAML_NODE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace snug {

// What is wrong at one place of a file. `field` is the path of the setting, where it is known.
struct YamlError {
  int line = 0;  // From 1; 0: an override of the command line.
  std::string field;
  std::string message;
};

// A status that says all of it, a line each: `file:line: message`, in the order of lines; of more
// than ten, the first ten and how many there are. YamlErrors reads them back, all of them.
absl::Status YamlStatus(absl::string_view place, std::vector<YamlError> errors);
std::vector<YamlError> YamlErrors(const absl::Status& status);

struct YamlEntry;

struct YamlNode {
  enum class Kind { kNull, kScalar, kSequence, kMapping };
  Kind kind = Kind::kNull;
  int line = 0;  // From 1.
  std::string scalar;
  std::vector<YamlNode> items;
  std::vector<YamlEntry> entries;  // In the file's order; keys are scalars, and may be there twice.
};

struct YamlEntry {
  std::string key;
  int line = 0;
  YamlNode value;
  std::string written = {};  // The key as the file has it, where `key` is another name for it.
};

// One document of at most 1 MiB, 64 levels and 100,000 nodes; an empty one is kNull. Aliases are
// expanded. JSON is YAML, with escapes of its own for what is beyond 16 bits. InvalidArgument names
// `file` and the line.
absl::StatusOr<YamlNode> ReadYaml(absl::string_view text, absl::string_view file);

}  // namespace snug

#endif  // PROTO_SNUG_YAML_NODE_H_
