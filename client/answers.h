// Prompts to the daemon, answers back, token by token.
#ifndef CLIENT_ANSWERS_H_
#define CLIENT_ANSWERS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/command_line.h"
#include "client/connection.h"

namespace snug::client {

// A request without prompts, with all that the command line says of it.
v1::SampleRequest SampleRequestOf(const CommandLine& line);

struct Answer {
  std::string text;
  std::vector<int32_t> tokens;
  v1::SampleChunk::PromptEnded::Reason ended = v1::SampleChunk::PromptEnded::REASON_UNSPECIFIED;
};

struct Answers {
  std::string device;
  int64_t reserved_bytes = 0;
  int64_t measured_peak_bytes = 0;
  std::vector<Answer> answers;  // One per prompt.
};

// `told` is given each piece as it comes: the number of its prompt and the text.
absl::StatusOr<Answers> Ask(Connection& connection, const v1::SampleRequest& request,
                            const std::function<void(int, const std::string&)>& told);

}  // namespace snug::client

#endif  // CLIENT_ANSWERS_H_
