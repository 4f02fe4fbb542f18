// Names that other fine-tuning tools give to our fields. A file may use them, at the top level or
// in their section; this turns them into ours before the file is read against the schema.
//
// All of it is data. In other_names.cc: names for the same thing, values that are spelled
// otherwise. In refused_names.cc: settings that ask for nothing here, which may stand, and those
// that have no place, which are refused with what to do instead.
#ifndef PROTO_SNUG_OTHER_NAMES_H_
#define PROTO_SNUG_OTHER_NAMES_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "proto/snug/yaml_node.h"

namespace snug {

// All dotted paths of fields below `message`, its own first. Maps are leaves.
std::vector<std::string> FieldPaths(const google::protobuf::Descriptor& message);

// What a key of the mapping at `section` ("" = the file itself) means by our names.
struct OurName {
  enum class Kind { kUnknown, kField, kNothing, kRefused };
  Kind kind = Kind::kUnknown;  // kNothing: says what is so anyway (load_in_4bit: false).
  std::string path;            // kField: of the whole file, "training.max_seq_length".
  std::string value;           // kField: ours; empty: as it was given.
  bool commas = false;         // kField: text that holds commas is a list.
  std::string why;             // kRefused
};

// `value`: of the key, where it is a scalar or a list of one, else null. A name of another tool is
// known only where `root` has its field.
OurName OurNameOf(absl::string_view section, absl::string_view key, const std::string* value,
                  const google::protobuf::Descriptor& root);

// The path by our names of a key as the command line has it: section.key, or key.
OurName OurNameOfPath(const std::string& path, const std::string& value,
                      const google::protobuf::Descriptor& root);

// Moves the entries of `file` that have other names, or stand at the top level, to where they
// belong. `error` is told of each that is refused.
using NameError = std::function<void(int line, const std::string& key, const std::string& what)>;
void UseOurNames(const google::protobuf::Descriptor& root, YamlNode* file, const NameError& error);

}  // namespace snug

#endif  // PROTO_SNUG_OTHER_NAMES_H_
