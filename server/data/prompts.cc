#include "server/data/prompts.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/data/sha256.h"
#include "server/plan/planner.h"
#include "worker/program/files/json.h"

namespace snug::server {
namespace {

constexpr program::JsonLimits kLimits = {.bytes = int64_t{64} << 20, .values = 1'000'000};

nlohmann::json TextsOf(const v1::JobSpec& spec) {
  nlohmann::json texts = nlohmann::json::array();
  for (const std::string& prompt : spec.training().sample_prompts()) texts.push_back(prompt);
  return texts;
}

absl::Status Write(const nlohmann::json& prompts, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  file << prompts.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

}  // namespace

std::string PromptsFile(const v1::JobSpec& spec, const std::string& train_folder) {
  const bool answers = spec.training().predict_with_generate();
  if (spec.training().sample_prompts().empty() && !answers) return "";
  // The number is that of the form: files of another one are written anew.
  std::string key = absl::StrCat(MaxPromptTokens(spec), "|", 2);
  for (const std::string& prompt : spec.training().sample_prompts())
    absl::StrAppend(&key, "|", Sha256Hex(prompt));
  return absl::StrCat(train_folder, "/prompts-", Sha256Hex(key).substr(0, 16), ".json");
}

absl::StatusOr<int64_t> LongestPrompt(const std::string& path) {
  if (path.empty()) return 0;
  ASSIGN_OR_RETURN(const nlohmann::json json, program::ReadJsonFile(path, kLimits));
  const bool good = json.is_object() && json.contains("prompts") && json["prompts"].is_array();
  if (!good) return absl::DataLossError(absl::StrCat(path, " has no prompts"));
  size_t longest = 0;
  for (const nlohmann::json& prompt : json["prompts"]) {
    if (prompt.is_object() && prompt.contains("ids"))
      longest = std::max(longest, prompt["ids"].size());
  }
  return static_cast<int64_t>(longest);
}

absl::Status WriteTexts(const v1::JobSpec& spec, const std::string& path) {
  return Write(TextsOf(spec), path);
}

absl::Status WritePrompts(const SamplePrompts& prompts, const std::string& path) {
  nlohmann::json asked = nlohmann::json::array();
  for (const v1::SamplePrompt& prompt : prompts) {
    if (prompt.messages().empty()) {
      asked.push_back(prompt.text());
      continue;
    }
    nlohmann::json messages = nlohmann::json::array();
    for (const v1::SampleMessage& message : prompt.messages())
      messages.push_back({{"role", message.role()}, {"content", message.content()}});
    asked.push_back({{"messages", std::move(messages)}});
  }
  return Write(asked, path);
}

}  // namespace snug::server
