// Replies as JSON for scripts: proto3 JSON with the field names of the proto, fields without a
// value included.
#ifndef CLIENT_JSON_H_
#define CLIENT_JSON_H_

#include <string>
#include <vector>

#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"
#include "snug/v1/job.pb.h"

namespace snug::client {

using Json = nlohmann::ordered_json;

// Any message; absent sub-messages stay absent.
Json ToJson(const google::protobuf::Message& message);

// A job always has `error` ({} when there is none; its `field` as the job file has it), `progress`
// and `memory`.
Json JobToJson(const v1::Job& job);
Json JobsToJson(const std::vector<v1::Job>& jobs);  // {"jobs": [...]}

// As text, over lines; with a newline at its end. JsonLine is all in one line: for streams.
std::string JsonText(const Json& json);
std::string JsonLine(const Json& json);

}  // namespace snug::client

#endif  // CLIENT_JSON_H_
