// The wire form of the worker link: each message is its length as a varint, followed by its bytes.
#ifndef SERVER_NODE_FRAMING_H_
#define SERVER_NODE_FRAMING_H_

#include <cstddef>
#include <string>
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "absl/status/statusor.h"

namespace snug::server {

// A step's event has about 150 bytes; the largest message, a result with its error, a few KiB.
inline constexpr size_t kMaxFrameBytes = 1 << 20;
// Of a peer that has not said who it is: Hello, with a step in it, has 400.
inline constexpr size_t kMaxFirstFrameBytes = 4 << 10;

std::string Frame(absl::string_view message);

// Bytes in, whole messages out. Holds at most one frame and what was added last.
class FrameReader {
 public:
  explicit FrameReader(size_t max_frame_bytes = kMaxFrameBytes) : limit_(max_frame_bytes) {}
  void AllowFrames(size_t max_frame_bytes) { limit_ = max_frame_bytes; }

  void Add(absl::string_view bytes);

  // True: `message` is the next one. False: more bytes are needed. INVALID_ARGUMENT: this is no
  // frame; nothing after it can be read.
  absl::StatusOr<bool> Next(std::string& message);

  // Whether a frame has begun and not ended.
  bool HasPart() const { return read_ < buffer_.size(); }

 private:
  size_t limit_;
  std::string buffer_;
  size_t read_ = 0;  // What lies before has been handed out.
};

}  // namespace snug::server

#endif  // SERVER_NODE_FRAMING_H_
