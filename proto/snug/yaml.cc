// Walks a YAML tree and a message's descriptor side by side. What is wrong is collected, not
// thrown: whoever corrects a file wants to see all of it.
#include "proto/snug/yaml.h"

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "google/protobuf/descriptor.h"
#include "proto/snug/enum_words.h"
#include "proto/snug/key_hint.h"
#include "proto/snug/other_names.h"
#include "proto/snug/status_macros.h"
#include "proto/snug/yaml_node.h"

namespace snug {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr size_t kMaxErrors = 1000;  // Collected of one file.
constexpr const char* kKindKey = "kind";
constexpr double kMaxExact =
    1LL << 53;  // Whole numbers up to here are exact when written with an exponent.

// A whole number in [low, high]; 1e3 is one, 1.5 is none.
bool ParseWhole(const std::string& text, int64_t low, int64_t high, int64_t* value) {
  double real = 0;
  if (!absl::SimpleAtoi(text, value)) {
    if (!absl::SimpleAtod(text, &real) || std::trunc(real) != real || std::abs(real) > kMaxExact)
      return false;
    *value = static_cast<int64_t>(real);
  }
  return *value >= low && *value <= high;
}

bool ParseBool(const std::string& text, bool* value) {
  *value = absl::EqualsIgnoreCase(text, "true");
  return *value || absl::EqualsIgnoreCase(text, "false");
}

// The zero value means "not given" and has no spelling.
std::vector<std::string> SpellingsOf(const EnumDescriptor& type) {
  std::vector<std::string> words;
  for (int i = 0; i < type.value_count(); ++i) {
    if (type.value(i)->number() != 0)
      words.push_back(absl::AsciiStrToLower(EnumWord(*type.value(i))));
  }
  return words;
}

std::string Expected(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return "a whole number from -2147483648 to 2147483647";
    case FieldDescriptor::CPPTYPE_INT64:
      return "a whole number";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return "a finite number";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_ENUM:
      return absl::StrJoin(SpellingsOf(*field.enum_type()), " | ");
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return "a mapping of its keys to values";
    default:
      return "text";
  }
}

std::string Shown(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kSequence) return "a list";
  if (node.kind == YamlNode::Kind::kMapping) return "a mapping";
  return node.kind == YamlNode::Kind::kNull ? "nothing" : absl::StrCat("\"", node.scalar, "\"");
}

std::string Join(const std::string& path, const std::string& key) {
  return path.empty() ? key : absl::StrCat(path, ".", key);
}

class Filler {
 public:
  // `place` is the file's name, or says that a command line's override is meant (then there are no
  // lines).
  Filler(std::string place, bool has_lines, const Descriptor& root)
      : place_(std::move(place)), has_lines_(has_lines), root_(root) {}

  // A mapping's keys into the fields of `message`, which is at `path` of the root.
  void Fill(const YamlNode& node, const std::string& path, Message* message) {
    if (node.kind == YamlNode::Kind::kNull) return;
    if (node.kind != YamlNode::Kind::kMapping) {
      const std::string what = path.empty() ? "the file" : path;
      return Error(node.line, path,
                   absl::StrCat(what, " must be a mapping of keys to values, not ", Shown(node)));
    }
    std::map<std::string, const YamlEntry*> seen;
    for (const YamlEntry& entry : node.entries) {
      const auto [first, is_new] = seen.emplace(entry.key, &entry);
      if (!is_new) {
        Error(entry.line, Join(path, entry.key), Twice(path, *first->second, entry));
        continue;
      }
      const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(entry.key);
      if (field == nullptr) {
        UnknownKey(entry.line, path, entry.key, *message->GetDescriptor());
        continue;
      }
      SetField(entry.value, *field, Join(path, entry.key), message);
    }
  }

  void SetField(const YamlNode& node, const FieldDescriptor& field, const std::string& path,
                Message* message) {
    if (node.kind == YamlNode::Kind::kNull) return;
    if (field.is_map()) return SetMap(node, field, path, message);
    if (!field.is_repeated()) return SetOne(node, field, path, message);
    if (node.kind != YamlNode::Kind::kSequence) return SetOne(node, field, path, message);
    for (size_t i = 0; i < node.items.size(); ++i) {
      SetOne(node.items[i], field, absl::StrCat(path, "[", i, "]"), message);
    }
  }

  // Of a map to kinds: the map beside it to what a kind takes; null: no kind takes anything.
  static const FieldDescriptor* OptionsOf(const FieldDescriptor& field) {
    if (field.message_type()->map_value()->enum_type() == nullptr) return nullptr;
    return field.containing_type()->FindFieldByName(field.name() + "_options");
  }

  // One entry of a map field.
  void SetMapEntry(const std::string& key, const YamlNode& node, const FieldDescriptor& field,
                   const std::string& path, Message* message) {
    const FieldDescriptor& key_field = *field.message_type()->map_key();
    if (node.kind == YamlNode::Kind::kMapping && OptionsOf(field) != nullptr)
      return SetKindWithOptions(key, node, field, path, message);
    Message* entry = message->GetReflection()->AddMessage(message, &field);
    YamlNode key_node{YamlNode::Kind::kScalar, node.line, key, {}, {}};
    SetOne(key_node, key_field, path, entry);
    SetOne(node, *field.message_type()->map_value(), absl::StrCat(path, "[\"", key, "\"]"), entry);
  }

  void UnknownKey(int line, const std::string& path, const std::string& key, const Descriptor& at) {
    if (errors_.size() == kMaxErrors) return;  // Without working out a hint that nobody reads.
    const std::string where = path.empty() ? "" : absl::StrCat(" in ", path);
    Error(line, Join(path, key),
          absl::StrCat("unknown key \"", key, "\"", where, "; ", KeyHint(key, at, root_)));
  }

  // `field`: the path of the setting that is wrong.
  void Error(int line, const std::string& field, const std::string& what) {
    if (errors_.size() == kMaxErrors) return;
    errors_.push_back({.line = has_lines_ ? line : 0, .field = field, .message = what});
  }

  absl::Status Finish() const { return YamlStatus(place_, errors_); }

 private:
  static std::string Twice(const std::string& path, const YamlEntry& first,
                           const YamlEntry& second) {
    const std::string ours = Join(path, first.key);
    const auto name = [&](const YamlEntry& entry) {
      return entry.written.empty() ? ours : entry.written;
    };
    if (name(first) == name(second))
      return absl::StrCat("\"", name(second), "\" is there twice; first in line ", first.line);
    return absl::StrCat("\"", name(second), "\" and \"", name(first), "\" in line ", first.line,
                        " are both ", ours, "; give one of them");
  }

  // {kind: KIND, ...}: the kind into its map, all else into that of options.
  void SetKindWithOptions(const std::string& key, const YamlNode& node,
                          const FieldDescriptor& field, const std::string& path, Message* message) {
    const FieldDescriptor& options = *OptionsOf(field);
    const std::string at = absl::StrCat(path, "[\"", key, "\"]");
    YamlNode rest{YamlNode::Kind::kMapping, node.line, "", {}, {}};
    const YamlEntry* kind = nullptr;
    for (const YamlEntry& entry : node.entries) {
      if (entry.key == kKindKey) {
        kind = &entry;
      } else {
        rest.entries.push_back(entry);
      }
    }
    if (kind == nullptr) return Error(node.line, at, absl::StrCat(at, " needs a kind"));
    SetMapEntry(key, kind->value, field, path, message);
    if (rest.entries.empty()) return;
    Message* entry = message->GetReflection()->AddMessage(message, &options);
    YamlNode key_node{YamlNode::Kind::kScalar, node.line, key, {}, {}};
    SetOne(key_node, *options.message_type()->map_key(), at, entry);
    SetOne(rest, *options.message_type()->map_value(), at, entry);
  }

  void SetMap(const YamlNode& node, const FieldDescriptor& field, const std::string& path,
              Message* message) {
    if (node.kind != YamlNode::Kind::kMapping) {
      return Error(node.line, path,
                   absl::StrCat(path, " must be a mapping of keys to values, not ", Shown(node)));
    }
    std::set<std::string> seen;
    for (const YamlEntry& entry : node.entries) {
      if (!seen.insert(entry.key).second) {
        Error(entry.line, path, absl::StrCat("\"", entry.key, "\" is there twice in ", path));
        continue;
      }
      SetMapEntry(entry.key, entry.value, field, path, message);
    }
  }

  // Sets a singular field, or adds an element to a repeated one.
  void SetOne(const YamlNode& node, const FieldDescriptor& field, const std::string& path,
              Message* message) {
    const Reflection& reflection = *message->GetReflection();
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Message* part = field.is_repeated() ? reflection.AddMessage(message, &field)
                                          : reflection.MutableMessage(message, &field);
      return Fill(node, path, part);
    }
    if (node.kind != YamlNode::Kind::kScalar || !SetScalar(node.scalar, field, message)) {
      Error(node.line, path,
            absl::StrCat(path, " must be ", Expected(field), ", not ", Shown(node),
                         EnumHint(node, field)));
    }
  }

  static std::string EnumHint(const YamlNode& node, const FieldDescriptor& field) {
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_ENUM || node.kind != YamlNode::Kind::kScalar)
      return "";
    const std::string near = Nearest(node.scalar, SpellingsOf(*field.enum_type()));
    return near.empty() ? "" : absl::StrCat("; did you mean ", near, "?");
  }

  // False when `text` does not spell a value of the field's type.
  static bool SetScalar(const std::string& text, const FieldDescriptor& field, Message* message) {
    const Reflection& reflection = *message->GetReflection();
    const auto set = [&](auto add, auto assign, auto value) {
      field.is_repeated() ? (reflection.*add)(message, &field, value)
                          : (reflection.*assign)(message, &field, value);
      return true;
    };
    int64_t whole = 0;
    double real = 0;
    bool truth = false;
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32: {
        using Limits = std::numeric_limits<int32_t>;
        return ParseWhole(text, Limits::min(), Limits::max(), &whole) &&
               set(&Reflection::AddInt32, &Reflection::SetInt32, static_cast<int32_t>(whole));
      }
      case FieldDescriptor::CPPTYPE_INT64: {
        using Limits = std::numeric_limits<int64_t>;
        return ParseWhole(text, Limits::min(), Limits::max(), &whole) &&
               set(&Reflection::AddInt64, &Reflection::SetInt64, whole);
      }
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return absl::SimpleAtod(text, &real) && std::isfinite(real) &&
               set(&Reflection::AddDouble, &Reflection::SetDouble, real);
      case FieldDescriptor::CPPTYPE_BOOL:
        return ParseBool(text, &truth) && set(&Reflection::AddBool, &Reflection::SetBool, truth);
      case FieldDescriptor::CPPTYPE_ENUM: {
        const EnumValueDescriptor* value = FindEnumWord(*field.enum_type(), text);
        if (value == nullptr) return false;
        // The zero value's name is what JSON has for a field that was not given.
        return value->number() == 0 || set(&Reflection::AddEnum, &Reflection::SetEnum, value);
      }
      case FieldDescriptor::CPPTYPE_STRING:
        field.is_repeated() ? reflection.AddString(message, &field, text)
                            : reflection.SetString(message, &field, text);
        return true;
      default:
        return false;  // A type that no message spelled in YAML has.
    }
  }

  const std::string place_;
  const bool has_lines_;
  const Descriptor& root_;
  std::vector<YamlError> errors_;
};

// A text field takes an override's value as it stands: display_name=a: b.
absl::StatusOr<YamlNode> OverrideValue(const FieldDescriptor& field, bool is_map_entry,
                                       const std::string& text) {
  const bool is_text = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING && !field.is_repeated();
  if (is_text && !is_map_entry) return YamlNode{YamlNode::Kind::kScalar, 1, text, {}, {}};
  return ReadYaml(text, "value");
}

// Removes the entry of `key` from the map field, if there is one: entries of a map field, seen by
// reflection, are a list.
void EraseMapEntry(const FieldDescriptor& field, const std::string& key, Message* message) {
  const Reflection& reflection = *message->GetReflection();
  const FieldDescriptor* key_field = field.message_type()->map_key();
  if (key_field->cpp_type() != FieldDescriptor::CPPTYPE_STRING) return;
  for (int i = reflection.FieldSize(*message, &field) - 1; i >= 0; --i) {
    const Message& entry = reflection.GetRepeatedMessage(*message, &field, i);
    if (entry.GetReflection()->GetString(entry, key_field) != key) continue;
    reflection.SwapElements(message, &field, i, reflection.FieldSize(*message, &field) - 1);
    reflection.RemoveLast(message, &field);
  }
}

}  // namespace

absl::Status ParseYaml(absl::string_view text, absl::string_view file, Message* message) {
  ASSIGN_OR_RETURN(YamlNode root, ReadYaml(text, file));
  const Descriptor& descriptor = *message->GetDescriptor();
  Filler filler(std::string(file), /*has_lines=*/true, descriptor);
  UseOurNames(descriptor, &root, [&](int line, const std::string& field, const std::string& what) {
    filler.Error(line, field, what);
  });
  filler.Fill(root, "", message);
  return filler.Finish();
}

int LineOfField(absl::string_view text, absl::string_view field, const Descriptor& root) {
  absl::StatusOr<YamlNode> file = ReadYaml(text, "");
  if (!file.ok()) return 0;
  UseOurNames(root, &*file, [](int, const std::string&, const std::string&) {});
  const YamlNode* node = &*file;
  int line = 0;
  for (absl::string_view part : absl::StrSplit(field, absl::ByAnyChar(".["))) {
    size_t index = 0;
    const bool is_item = absl::ConsumeSuffix(&part, "]") && absl::SimpleAtoi(part, &index);
    if (is_item && node->kind == YamlNode::Kind::kSequence && index < node->items.size()) {
      node = &node->items[index];
      line = node->line;
      continue;
    }
    const auto entry = absl::c_find_if(node->entries,
                                       [&](const YamlEntry& one) { return one.key == part; });
    if (entry == node->entries.end()) break;
    line = entry->line;
    node = &entry->value;
  }
  return line;
}

absl::Status ApplyOverride(absl::string_view assignment, Message* message) {
  const size_t equals = assignment.find('=');
  if (equals == 0 || equals == absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", assignment, "\" is no setting; write key=value, for example training.max_steps=5"));
  }
  std::string rest(assignment.substr(0, equals));
  std::string value(assignment.substr(equals + 1));
  Filler filler(absl::StrCat("override \"", assignment, "\""), /*has_lines=*/false,
                *message->GetDescriptor());
  const OurName ours = OurNameOfPath(rest, value, *message->GetDescriptor());
  if (ours.kind == OurName::Kind::kRefused) filler.Error(0, rest, ours.why);
  if (ours.kind == OurName::Kind::kRefused || ours.kind == OurName::Kind::kNothing)
    return filler.Finish();
  if (ours.kind == OurName::Kind::kField) {
    // What it overrides may stand under the key itself: warmup_steps=0.1 is warmup_ratio.
    const OurName plain = OurNameOfPath(rest, "", *message->GetDescriptor());
    const std::string named = plain.path.empty() ? rest : plain.path;
    if (plain.kind != OurName::Kind::kRefused && named != ours.path)
      RETURN_IF_ERROR(ApplyOverride(absl::StrCat(named, "="), message));
    rest = ours.path;
    if (!ours.value.empty()) value = ours.value;
    const bool is_list = absl::StartsWith(value, "[");
    if (ours.commas && !is_list && absl::StrContains(value, ','))
      value = absl::StrCat("[", value, "]");
  }
  std::string path;  // Walked so far.
  while (true) {
    const std::string key = rest.substr(0, rest.find('.'));
    const bool is_last = key.size() == rest.size();
    rest = is_last ? "" : rest.substr(key.size() + 1);
    const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(key);
    if (field == nullptr) {
      filler.UnknownKey(0, path, key, *message->GetDescriptor());
      return filler.Finish();
    }
    path = Join(path, key);
    const bool is_map_entry = field->is_map() && !is_last;
    if (is_last || is_map_entry) {
      absl::StatusOr<YamlNode> node = OverrideValue(*field, is_map_entry, value);
      if (!node.ok()) {
        filler.Error(0, path, std::string(node.status().message()));
        return filler.Finish();
      }
      if (is_map_entry) {
        EraseMapEntry(*field, rest, message);
        if (const FieldDescriptor* options = Filler::OptionsOf(*field))
          EraseMapEntry(*options, rest, message);
        if (node->kind != YamlNode::Kind::kNull)
          filler.SetMapEntry(rest, *node, *field, path, message);
      } else {
        message->GetReflection()->ClearField(message, field);
        filler.SetField(*node, *field, path, message);
      }
      return filler.Finish();
    }
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || field->is_repeated()) {
      filler.Error(0, path,
                   absl::StrCat(path, " has no parts, so \"", rest, "\" cannot be set in it"));
      return filler.Finish();
    }
    message = message->GetReflection()->MutableMessage(message, field);
  }
}

}  // namespace snug
