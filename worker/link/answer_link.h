// Where a worker sends what it answers: a unix socket of the daemon's, for this attempt alone. Who
// listens there ends the attempt by going away, be it the client, the daemon or the machine.
#ifndef WORKER_LINK_ANSWER_LINK_H_
#define WORKER_LINK_ANSWER_LINK_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/train/attempt.h"

namespace snug::link {

// Sends wait while the listener takes nothing. CANCELLED: nobody listens any more.
class AnswerLink {
 public:
  // Says by the attempt's nonce who it is.
  static absl::StatusOr<std::unique_ptr<AnswerLink>> Dial(const train::AttemptOptions& attempt);
  explicit AnswerLink(int socket) : socket_(socket) {}
  ~AnswerLink();
  AnswerLink(const AnswerLink&) = delete;
  AnswerLink& operator=(const AnswerLink&) = delete;

  // `text` is valid UTF-8.
  absl::Status Piece(int prompt, const std::string& text, std::span<const int32_t> tokens);
  absl::Status PromptEnded(int prompt, bool stopped);
  absl::Status Ended(int64_t measured_peak_bytes);
  // Asked where there is nothing to send.
  absl::Status CheckListener() const;

 private:
  absl::Status Send(const std::string& body);

  const int socket_;
};

}  // namespace snug::link

#endif  // WORKER_LINK_ANSWER_LINK_H_
