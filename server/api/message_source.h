// A stream of messages that whoever sends it on pulls one by one: a log, a download, an answer's
// tokens.
#ifndef SERVER_API_MESSAGE_SOURCE_H_
#define SERVER_API_MESSAGE_SOURCE_H_

#include <functional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace snug::server {

inline constexpr size_t kChunkBytes = 256 << 10;  // Of a file, in one message.

// What comes next: a message; or nothing yet, ask again after `wait`; or the end.
template <typename Message>
struct Next {
  enum Kind { kMessage, kWait, kEnd };
  Kind kind = kEnd;
  Message message;
  absl::Duration wait = absl::Milliseconds(200);  // A log is followed by people.
};

// May read a disk, so it is called where waiting is allowed, and never twice at once.
template <typename Message>
using MessageSource = std::function<absl::StatusOr<Next<Message>>()>;

}  // namespace snug::server

#endif  // SERVER_API_MESSAGE_SOURCE_H_
