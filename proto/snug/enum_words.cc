#include "proto/snug/enum_words.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace snug {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;

// What all names of a type begin with: its zero value is called STATE_UNSPECIFIED.
absl::string_view PrefixOf(const EnumDescriptor& type) {
  return absl::StripSuffix(type.FindValueByNumber(0)->name(), "UNSPECIFIED");
}

// Of whose values JSON has other fields, too, which are no enums: the kinds of a plan's sites.
bool IsInLowerCase(const EnumDescriptor& type) { return type.full_name() == "snug.v1.StashKind"; }

}  // namespace

std::string EnumWord(const EnumValueDescriptor& value) {
  if (value.number() == 0) return value.name();
  const std::string word(absl::StripPrefix(value.name(), PrefixOf(*value.type())));
  return IsInLowerCase(*value.type()) ? absl::AsciiStrToLower(word) : word;
}

std::string EnumWord(const EnumDescriptor& type, int number) {
  const EnumValueDescriptor* value = type.FindValueByNumber(number);
  return value == nullptr ? absl::StrCat(number) : EnumWord(*value);
}

std::string LowerEnumWord(const EnumDescriptor& type, int number) {
  return absl::AsciiStrToLower(EnumWord(type, number));
}

const EnumValueDescriptor* FindEnumWord(const EnumDescriptor& type, absl::string_view word) {
  for (int i = 0; i < type.value_count(); ++i) {
    const EnumValueDescriptor& value = *type.value(i);
    const bool is_it = value.number() == 0 ? value.name() == word
                                           : absl::EqualsIgnoreCase(EnumWord(value), word) ||
                                                 absl::EqualsIgnoreCase(value.name(), word);
    if (is_it) return &value;
  }
  return nullptr;
}

}  // namespace snug
