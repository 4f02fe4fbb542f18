// The parsed tree is for what a printer of messages cannot do: an empty object, a list of jobs.
#include "client/json.h"

#include "client/errors.h"
#include "proto/snug/json.h"

namespace snug::client {
namespace {

// Bytes that are not UTF-8 (a file name) become U+FFFD.
constexpr auto kInvalidText = Json::error_handler_t::replace;

}  // namespace

Json ToJson(const google::protobuf::Message& message) {
  absl::StatusOr<Json> json = MessageToJson(message, JsonFields::kAll);
  if (!json.ok()) return Json::object({{"unprintable", std::string(json.status().message())}});
  return *std::move(json);
}

Json JobToJson(const v1::Job& job) {
  v1::Job complete = job;
  complete.mutable_progress();
  complete.mutable_memory();
  complete.mutable_error()->set_field(FilePath(job.error().field()));
  Json json = ToJson(complete);
  if (job.error().reason().empty() && job.error().message().empty()) json["error"] = Json::object();
  return json;
}

Json JobsToJson(const std::vector<v1::Job>& jobs) {
  Json list = Json::array();
  for (const v1::Job& job : jobs) list.push_back(JobToJson(job));
  return Json::object({{"jobs", std::move(list)}});
}

std::string JsonText(const Json& json) { return json.dump(2, ' ', false, kInvalidText) + "\n"; }

std::string JsonLine(const Json& json) { return json.dump(-1, ' ', false, kInvalidText) + "\n"; }

}  // namespace snug::client
