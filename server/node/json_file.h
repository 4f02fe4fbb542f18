// JSON that another program has written: a worker, a helper, a daemon of another version. What is
// longer or nested deeper than a limit reaches no parser that builds anything of it, for a worker
// that a model or a dataset has taken over writes what it likes.
//
// NOT_FOUND: there is no such file. DATA_LOSS: it is no file, too long, too deep, or no JSON. Any
// other error says that it cannot be read now.
#ifndef SERVER_NODE_JSON_FILE_H_
#define SERVER_NODE_JSON_FILE_H_

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/program/files/json.h"

namespace snug::server {

// `where` names the text in errors.
absl::StatusOr<nlohmann::json> JsonOfText(absl::string_view text, const std::string& where,
                                          const program::JsonLimits& limits);

absl::StatusOr<nlohmann::json> ReadJson(const std::string& path, const program::JsonLimits& limits);

// Fields that this version does not know are left out: the writer may be newer.
absl::Status ReadJsonMessage(const std::string& path, const program::JsonLimits& limits,
                             google::protobuf::Message* message);

}  // namespace snug::server

#endif  // SERVER_NODE_JSON_FILE_H_
