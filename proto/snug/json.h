// A message as JSON for people and scripts: proto3's mapping with the schema's field names, and an
// enum's values by their words (enum_words.h), "RUNNING" rather than "STATE_RUNNING".
#ifndef PROTO_SNUG_JSON_H_
#define PROTO_SNUG_JSON_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"

namespace snug {

enum class JsonFields {
  kGiven,  // Those that have a value.
  kAll,    // And every scalar and list; absent sub-messages stay absent.
};

// InvalidArgument for text that is not UTF-8 (a file's name).
absl::StatusOr<nlohmann::ordered_json> MessageToJson(const google::protobuf::Message& message,
                                                     JsonFields fields = JsonFields::kGiven);

enum class UnknownFields {
  kRefused,
  kIgnored,  // The text is another program's, which may be newer than this one.
};

// Takes an enum's values by word or by whole name. InvalidArgument says what is wrong and where.
absl::Status JsonToMessage(const std::string& text, UnknownFields unknown,
                           google::protobuf::Message* message);

}  // namespace snug

#endif  // PROTO_SNUG_JSON_H_
