// protobuf's own printer does the work; the parsed tree is only for what it cannot do: an empty
// object, a list of jobs.
#include "client/json.h"

#include "client/errors.h"
#include "google/protobuf/util/json_util.h"

namespace snug::client {
namespace {

// Bytes that are not UTF-8 (a file name) become U+FFFD.
constexpr auto kInvalidText = Json::error_handler_t::replace;

}  // namespace

Json ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  if (!status.ok()) return Json::object({{"unprintable", std::string(status.message())}});
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
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
