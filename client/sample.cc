// sample: a file of prompts, answered one after another.
#include <fstream>
#include <iostream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/answers.h"
#include "client/commands.h"
#include "client/json.h"
#include "client/table.h"
#include "proto/snug/enum_words.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

absl::StatusOr<std::string> ReadPrompts(const std::string& path) {
  std::ostringstream text;
  if (path == "-") {
    text << std::cin.rdbuf();
    return text.str();
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  text << file.rdbuf();
  return text.str();
}

// {"prompt": TEXT} or {"messages": [{"role", "content"}]}.
bool FromJson(const Json& json, v1::SamplePrompt& prompt) {
  if (!json.is_object()) return false;
  if (json.contains("prompt") && json["prompt"].is_string())
    prompt.set_text(json["prompt"].get<std::string>());
  if (!json.contains("messages")) return !prompt.text().empty();
  if (!json["messages"].is_array() || json["messages"].empty()) return false;
  prompt.clear_text();
  for (const Json& from : json["messages"]) {
    const auto text = [&](const char* key) {
      return from.is_object() && from.contains(key) && from[key].is_string();
    };
    if (!text("role") || !text("content")) return false;
    v1::SampleMessage& message = *prompt.add_messages();
    message.set_role(from["role"].get<std::string>());
    message.set_content(from["content"].get<std::string>());
  }
  return true;
}

// One prompt per line; of .jsonl an object per line. Empty lines are none.
absl::Status AddPrompts(const std::string& path, v1::SampleRequest& request) {
  ASSIGN_OR_RETURN(const std::string text, ReadPrompts(path));
  const bool json = absl::EndsWith(path, ".jsonl");
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    v1::SamplePrompt& prompt = *request.add_prompts();
    if (!json)
      prompt.set_text(line);
    else if (!FromJson(Json::parse(line, nullptr, /*allow_exceptions=*/false), prompt))
      return absl::InvalidArgumentError(absl::StrCat(
          path, ", line ", number,
          ": neither {\"prompt\": TEXT} nor {\"messages\": [{\"role\", \"content\"}, ...]}"));
  }
  if (request.prompts().empty())
    return absl::InvalidArgumentError(absl::StrCat(path, " has no prompts"));
  return absl::OkStatus();
}

std::string TextOf(const v1::SamplePrompt& prompt) {
  return prompt.messages().empty() ? prompt.text() : prompt.messages().rbegin()->content();
}

Json ToJson(const Answers& all, const v1::SampleRequest& request) {
  Json answers = Json::array();
  for (size_t i = 0; i < all.answers.size(); ++i) {
    const Answer& answer = all.answers[i];
    answers.push_back({{"prompt", TextOf(request.prompts(static_cast<int>(i)))},
                       {"answer", answer.text},
                       {"tokens", answer.tokens},
                       {"finish_reason", EnumWord(answer.ended)}});
  }
  return Json::object({{"device", all.device},
                       {"reserved_bytes", absl::StrCat(all.reserved_bytes)},
                       {"measured_peak_bytes", absl::StrCat(all.measured_peak_bytes)},
                       {"answers", std::move(answers)}});
}

}  // namespace

absl::StatusOr<int> SamplePrompts(const CommandLine& line, Terminal& terminal) {
  v1::SampleRequest request = SampleRequestOf(line);
  RETURN_IF_ERROR(AddPrompts(line.file, request));
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  const bool json = line.output == Output::kJson;
  int shown = -1;  // The prompt whose answer is being printed.
  const auto print = [&](int prompt, const std::string& text) {
    if (json) return;
    if (prompt != shown)
      terminal.out << (shown < 0 ? "" : "\n\n") << "> "
                   << PrintableLines(TextOf(request.prompts(prompt))) << "\n";
    shown = prompt;
    terminal.out << PrintableLines(text) << std::flush;
  };
  ASSIGN_OR_RETURN(const Answers all, Ask(connection, request, print));
  terminal.out << (json ? JsonText(ToJson(all, request)) : "\n");
  return kExitOk;
}

}  // namespace snug::client
