#include "server/node/json_file.h"

#include "absl/strings/str_cat.h"
#include "proto/snug/json.h"
#include "proto/snug/status_macros.h"
#include "server/node/attempt_files.h"

namespace snug::server {
namespace {

absl::Status Damaged(const absl::Status& status) { return absl::DataLossError(status.message()); }

}  // namespace

absl::StatusOr<nlohmann::json> JsonOfText(absl::string_view text, const std::string& where,
                                          const program::JsonLimits& limits) {
  absl::StatusOr<nlohmann::json> json =
      program::ParseJson(std::string_view(text.data(), text.size()), where, limits);
  if (!json.ok()) return Damaged(json.status());
  return json;
}

absl::StatusOr<nlohmann::json> ReadJson(const std::string& path,
                                        const program::JsonLimits& limits) {
  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, limits.bytes));
  return JsonOfText(text, path, limits);
}

absl::Status ReadJsonMessage(const std::string& path, const program::JsonLimits& limits,
                             google::protobuf::Message* message) {
  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, limits.bytes));
  const absl::Status within =
      program::CheckJson(std::string_view(text.data(), text.size()), path, limits);
  if (!within.ok()) return Damaged(within);
  const absl::Status parsed = JsonToMessage(text, UnknownFields::kIgnored, message);
  if (parsed.ok()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path, ": ", parsed.message()));
}

}  // namespace snug::server
