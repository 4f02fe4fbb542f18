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

std::string Frame(absl::string_view message);

// Bytes in, whole messages out.
class FrameReader {
 public:
  void Add(absl::string_view bytes) { absl::StrAppend(&buffer_, bytes); }

  // True: `message` is the next one. False: more bytes are needed. INVALID_ARGUMENT: this is no
  // frame; nothing after it can be read.
  absl::StatusOr<bool> Next(std::string& message);

 private:
  std::string buffer_;
};

}  // namespace snug::server

#endif  // SERVER_NODE_FRAMING_H_
