// chat: a conversation with a job's model, a line of standard input per turn. Every turn sends the
// whole conversation, so nothing of it stays anywhere but here.
#include <unistd.h>

#include <iostream>

#include "client/answers.h"
#include "client/commands.h"
#include "client/json.h"
#include "client/table.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

constexpr const char* kBold = "\033[1m";
constexpr const char* kPlain = "\033[0m";

// One side of the conversation: the tuned model, or the one that the job began with.
struct Side {
  std::string name;
  v1::SampleRequest request;  // With the messages so far.
};

void AddMessage(v1::SampleRequest& request, const std::string& role, const std::string& content) {
  v1::SamplePrompt& prompt =
      request.prompts().empty() ? *request.add_prompts() : *request.mutable_prompts(0);
  v1::SampleMessage& message = *prompt.add_messages();
  message.set_role(role);
  message.set_content(content);
}

// By a person, who is prompted.
bool IsTyped() { return isatty(STDIN_FILENO) == 1; }

class Chat {
 public:
  Chat(Connection& connection, const CommandLine& line, Terminal& terminal)
      : connection_(connection), line_(line), terminal_(terminal) {
    Begin();
  }

  absl::StatusOr<int> Run() {
    if (IsTyped()) terminal_.err << "/reset begins anew; /quit or Ctrl-D ends" << std::endl;
    for (std::string said; ReadLine(said);) {
      if (said == "/quit") break;
      if (said == "/reset")
        Begin();
      else if (!said.empty())
        RETURN_IF_ERROR(Turn(said));
    }
    return kExitOk;
  }

 private:
  void Begin() {
    CommandLine line = line_;
    line.base = false;
    sides_ = {{.name = line_.base ? "tuned" : "", .request = SampleRequestOf(line)}};
    if (line_.base) {
      line.base = true;
      line.checkpoint.reset();
      sides_.push_back({.name = "base", .request = SampleRequestOf(line)});
    }
    if (line_.system.empty()) return;
    for (Side& side : sides_) AddMessage(side.request, "system", line_.system);
  }

  bool ReadLine(std::string& said) {
    if (IsTyped()) terminal_.err << "> " << std::flush;
    if (std::getline(std::cin, said)) return true;
    if (IsTyped()) terminal_.err << std::endl;  // Ctrl-D leaves the cursor behind the prompt.
    return false;
  }

  // What failed is no part of the conversation; a person may say it again.
  absl::Status Turn(const std::string& said) {
    for (Side& side : sides_) {
      const v1::SampleRequest before = side.request;
      AddMessage(side.request, "user", said);
      const absl::Status answered = AnswerBy(side);
      if (answered.ok()) continue;
      side.request = before;
      if (!IsTyped()) return answered;
      terminal_.err << "\nsnug: " << answered.message() << std::endl;
    }
    return absl::OkStatus();
  }

  absl::Status AnswerBy(Side& side) {
    const bool json = line_.output == Output::kJson;
    if (!json && !side.name.empty()) {
      terminal_.out << (terminal_.is_tty ? kBold : "") << side.name << ":"
                    << (terminal_.is_tty ? kPlain : "") << " ";
    }
    const auto print = [&](int, const std::string& text) {
      if (!json) terminal_.out << PrintableLines(text) << std::flush;
    };
    ASSIGN_OR_RETURN(const Answers all, Ask(connection_, side.request, print));
    const std::string& text = all.answers.front().text;
    AddMessage(side.request, "assistant", text);
    if (json) {
      Json said = Json::object({{"answer", text}});
      if (!side.name.empty()) said["model"] = side.name;
      terminal_.out << JsonLine(said) << std::flush;
    } else {
      terminal_.out << "\n" << std::flush;
    }
    return absl::OkStatus();
  }

  Connection& connection_;
  const CommandLine& line_;
  Terminal& terminal_;
  std::vector<Side> sides_;
};

}  // namespace

absl::StatusOr<int> ChatWithJob(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(Connection connection, Connection::Open(line.server));
  return Chat(connection, line, terminal).Run();
}

}  // namespace snug::client
