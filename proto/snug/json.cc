#include "proto/snug/json.h"

#include <cctype>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/util/json_util.h"
#include "proto/snug/enum_words.h"

namespace snug {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using nlohmann::ordered_json;

constexpr int kMaxDepth = 100;  // Levels, as in protobuf's own parser.

// Another spelling of an enum's value; empty: the text stays.
using Respell = std::string (*)(const EnumDescriptor& type, const std::string& text);

std::string WordOfName(const EnumDescriptor& type, const std::string& name) {
  const EnumValueDescriptor* value = type.FindValueByName(name);
  return value == nullptr ? "" : EnumWord(*value);
}

std::string NameOfWord(const EnumDescriptor& type, const std::string& word) {
  const EnumValueDescriptor* value = FindEnumWord(type, word);
  return value == nullptr ? "" : value->name();
}

void RespellEnums(Respell respell, const Descriptor& type, ordered_json& json);

void RespellValue(Respell respell, const FieldDescriptor& field, ordered_json& json) {
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    RespellEnums(respell, *field.message_type(), json);
  } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM && json.is_string()) {
    std::string text = respell(*field.enum_type(), json.get_ref<const std::string&>());
    if (!text.empty()) json = std::move(text);
  }
}

void RespellField(Respell respell, const FieldDescriptor& field, ordered_json& json) {
  if (field.is_map() && json.is_object()) {
    for (auto& value : json) RespellValue(respell, *field.message_type()->map_value(), value);
  } else if (field.is_repeated() && json.is_array()) {
    for (auto& value : json) RespellValue(respell, field, value);
  } else {
    RespellValue(respell, field, json);
  }
}

// As deep as the message's type lets it be: what else the text has is not looked at.
void RespellEnums(Respell respell, const Descriptor& type, ordered_json& json) {
  if (!json.is_object()) return;
  for (auto& [key, value] : json.items()) {
    const FieldDescriptor* field = type.FindFieldByName(key);
    if (field == nullptr) field = type.FindFieldByCamelcaseName(key);
    if (field != nullptr) RespellField(respell, *field, value);
  }
}

// body(i) for each character that is no string's, until it gives false; of text that may be no
// JSON.
template <typename Body>
void ForEachOutsideStrings(absl::string_view text, const Body& body) {
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (in_string && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      in_string = !in_string;
    } else if (!in_string && !body(i)) {
      return;
    }
  }
}

// Whether objects and lists lie deeper in one another than kMaxDepth.
bool IsDeep(absl::string_view text) {
  int depth = 0;
  ForEachOutsideStrings(text, [&](size_t i) {
    depth += text[i] == '{' || text[i] == '[' ? 1 : text[i] == '}' || text[i] == ']' ? -1 : 0;
    return depth <= kMaxDepth;
  });
  return depth > kMaxDepth;
}

// protobuf writes "-0" where a double is -0.0, which other parsers read as the integer 0: with a
// point it stays what it is. `text` is JSON.
std::string WithSignedZeros(const std::string& text) {
  std::string kept;
  size_t copied = 0;
  const auto is = [&](size_t i, char c) { return i < text.size() && std::tolower(text[i]) == c; };
  ForEachOutsideStrings(text, [&](size_t i) {
    const bool zero = i > 0 && text[i - 1] == '-' && text[i] == '0';
    const bool exponent = i > 1 && is(i - 2, 'e');
    if (!zero || exponent || is(i + 1, '.') || is(i + 1, 'e')) return true;
    kept.append(text, copied, i + 1 - copied).append(".0");
    copied = i + 1;
    return true;
  });
  return kept.append(text, copied);
}

absl::Status InvalidJson(absl::string_view message) { return absl::InvalidArgumentError(message); }

}  // namespace

absl::StatusOr<ordered_json> MessageToJson(const google::protobuf::Message& message,
                                           JsonFields fields) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = fields == JsonFields::kAll;
  std::string text;
  const auto printed = google::protobuf::util::MessageToJsonString(message, &text, options);
  if (!printed.ok()) return InvalidJson(printed.message().ToString());
  ordered_json json =
      ordered_json::parse(WithSignedZeros(text), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return InvalidJson("text that is not UTF-8");
  RespellEnums(WordOfName, *message.GetDescriptor(), json);
  return json;
}

absl::Status JsonToMessage(const std::string& text, UnknownFields unknown,
                           google::protobuf::Message* message) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = unknown == UnknownFields::kIgnored;
  if (IsDeep(text)) return InvalidJson(absl::StrCat("more than ", kMaxDepth, " levels"));
  // Text that is no JSON goes on as it is: protobuf's parser says where.
  ordered_json json = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_discarded()) RespellEnums(NameOfWord, *message->GetDescriptor(), json);
  const auto parsed = google::protobuf::util::JsonStringToMessage(
      json.is_discarded() ? text : json.dump(), message, options);
  return parsed.ok() ? absl::OkStatus() : InvalidJson(parsed.message().ToString());
}

}  // namespace snug
