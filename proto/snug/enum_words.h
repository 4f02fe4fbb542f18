// An enum's values by their words: what job files, JSON, metrics and messages call STATE_RUNNING is
// RUNNING. In the schema a value bears its type's name, as names in one scope must differ.
#ifndef PROTO_SNUG_ENUM_WORDS_H_
#define PROTO_SNUG_ENUM_WORDS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/generated_enum_reflection.h"

namespace snug {

// The value's name without its type's prefix: "RUNNING"; a StashKind's in lower case, "recompute".
// The zero value means "not given" and keeps its whole name, "STATE_UNSPECIFIED".
std::string EnumWord(const google::protobuf::EnumValueDescriptor& value);

// By number; a number that the type does not know (a newer program sent it) in digits.
std::string EnumWord(const google::protobuf::EnumDescriptor& type, int number);

template <typename Enum>
std::string EnumWord(Enum value) {
  return EnumWord(*google::protobuf::GetEnumDescriptor<Enum>(), static_cast<int>(value));
}

// In lower case, as job files have them: "running".
std::string LowerEnumWord(const google::protobuf::EnumDescriptor& type, int number);

template <typename Enum>
std::string LowerEnumWord(Enum value) {
  return LowerEnumWord(*google::protobuf::GetEnumDescriptor<Enum>(), static_cast<int>(value));
}

// The value with this word or this whole name, in any case; null when there is none. The zero value
// has no word, only its name as the schema spells it.
const google::protobuf::EnumValueDescriptor* FindEnumWord(
    const google::protobuf::EnumDescriptor& type, absl::string_view word);

// False, and *value as it was, when no value has the word.
template <typename Enum>
bool ParseEnumWord(absl::string_view word, Enum* value) {
  const auto* found = FindEnumWord(*google::protobuf::GetEnumDescriptor<Enum>(), word);
  if (found != nullptr) *value = static_cast<Enum>(found->number());
  return found != nullptr;
}

}  // namespace snug

#endif  // PROTO_SNUG_ENUM_WORDS_H_
