#include "server/artifact/manifest.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/node/attempt_files.h"
#include "worker/program/files/json.h"

namespace snug::server {
namespace {

constexpr program::JsonLimits kLimits = {.bytes = 1 << 20, .depth = 8};

}  // namespace

int64_t IntegerIn(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : -1;
}

absl::StatusOr<CheckpointManifest> ReadCheckpointManifest(const std::string& dir) {
  const auto name = ParseCheckpointName(std::filesystem::path(dir).filename().string());
  if (!name) return absl::InvalidArgumentError(absl::StrCat(dir, " is no checkpoint's name"));
  const std::string path = dir + "/MANIFEST.json";
  CheckpointManifest read{.name = *name, .text = {}, .json = {}};
  ASSIGN_OR_RETURN(read.text, ReadSmallFile(path, kLimits.bytes));
  read.json = program::ParseJson(read.text, path, kLimits).value_or(nullptr);
  if (!read.json.is_object() || !read.json.contains("files") || !read.json["files"].is_object())
    return absl::DataLossError(absl::StrCat(path, " is no manifest"));
  if (IntegerIn(read.json, "step") != name->step || IntegerIn(read.json, "epoch") != name->epoch)
    return absl::DataLossError(absl::StrCat(path, " is of another checkpoint"));
  return read;
}

}  // namespace snug::server
