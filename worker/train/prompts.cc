#include "worker/train/prompts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/program/files/json.h"

namespace snug::train {
namespace {

// 64 prompts of 64 KiB, and a vocabulary of a million tokens of 16 bytes, each up to two in UTF-8.
constexpr program::JsonLimits kLimits = {.bytes = int64_t{64} << 20, .values = 1'000'000};

// Characters below U+0100 as bytes.
std::string BytesOf(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool two = c >= 0xC0 && i + 1 < text.size();
    bytes += static_cast<char>(two ? (c & 0x03) << 6 | (text[++i] & 0x3F) : c);
  }
  return bytes;
}

bool IsId(const nlohmann::json& value, int64_t vocabulary) {
  return value.is_number_unsigned() && value.get<uint64_t>() < static_cast<uint64_t>(vocabulary);
}

}  // namespace

absl::StatusOr<Prompts> Prompts::Read(const std::string& path, int64_t vocabulary) {
  ASSIGN_OR_RETURN(const nlohmann::json json, program::ReadJsonFile(path, kLimits));
  const auto wrong = [&](const char* what) {
    return absl::DataLossError(absl::StrCat(path, ": ", what));
  };
  if (!json.is_object() || !json.contains("prompts") || !json.contains("stop_ids") ||
      !json.contains("token_bytes") || !json["token_bytes"].is_string())
    return wrong("no file of prompts");
  Prompts prompts;
  for (const nlohmann::json& entry : json["prompts"]) {
    if (!entry.is_object() || !entry.contains("text") || !entry.contains("ids") ||
        !entry["text"].is_string() || entry["ids"].empty())
      return wrong("a prompt without text or ids");
    Prompt prompt = {.text = entry["text"].get<std::string>(), .ids = {}};
    for (const nlohmann::json& id : entry["ids"]) {
      if (!IsId(id, vocabulary)) return wrong("a prompt has an id that is none of the model's");
      prompt.ids.push_back(id.get<int32_t>());
    }
    prompts.prompts_.push_back(std::move(prompt));
  }
  for (const nlohmann::json& id : json["stop_ids"])
    if (IsId(id, vocabulary)) prompts.stop_ids_.insert(id.get<int32_t>());
  prompts.drops_space_ = json.value("drops_space", nlohmann::json()) == true;
  const std::string spelled = BytesOf(json["token_bytes"].get<std::string>());
  prompts.begin_ = {0};
  for (size_t at = 0; at + 1 < spelled.size();) {
    const size_t length =
        static_cast<unsigned char>(spelled[at]) << 8 | static_cast<unsigned char>(spelled[at + 1]);
    prompts.bytes_ += spelled.substr(at + 2, length);
    prompts.begin_.push_back(static_cast<uint32_t>(prompts.bytes_.size()));
    at += 2 + length;
  }
  if (prompts.begin_.size() != static_cast<size_t>(vocabulary) + 1)
    return wrong("token_bytes is not of this vocabulary");
  return prompts;
}

int64_t Prompts::longest() const {
  size_t longest = 0;
  for (const Prompt& prompt : prompts_) longest = std::max(longest, prompt.ids.size());
  return static_cast<int64_t>(longest);
}

std::string Prompts::TextOf(std::span<const int32_t> ids, bool begins) const {
  std::string text;
  for (const int32_t id : ids) {
    const auto i = static_cast<size_t>(id);
    text.append(bytes_, begin_[i], begin_[i + 1] - begin_[i]);
  }
  if (begins && drops_space_ && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

}  // namespace snug::train
