#include "server/node/framing.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace snug::server {
namespace {

constexpr int kMaxLengthBytes = 4;  // 28 bits: more than kMaxFrameBytes needs.

}  // namespace

std::string Frame(absl::string_view message) {
  std::string frame;
  uint64_t length = message.size();
  while (length >= 0x80) {
    frame += static_cast<char>(length | 0x80);
    length >>= 7;
  }
  frame += static_cast<char>(length);
  absl::StrAppend(&frame, message);
  return frame;
}

void FrameReader::Add(absl::string_view bytes) {
  buffer_.erase(0, read_);
  read_ = 0;
  absl::StrAppend(&buffer_, bytes);
}

absl::StatusOr<bool> FrameReader::Next(std::string& message) {
  const absl::string_view rest = absl::string_view(buffer_).substr(read_);
  uint64_t length = 0;
  size_t head = 0;
  while (true) {
    if (head == rest.size()) return false;
    if (head == kMaxLengthBytes) return absl::InvalidArgumentError("a frame's length is no varint");
    const auto byte = static_cast<uint8_t>(rest[head]);
    length |= static_cast<uint64_t>(byte & 0x7F) << (7 * head);
    ++head;
    if (byte < 0x80) break;
  }
  if (length > limit_)
    return absl::InvalidArgumentError(
        absl::StrCat("a frame of ", length, " bytes; at most ", limit_));
  if (rest.size() - head < length) return false;
  message = std::string(rest.substr(head, length));
  read_ += head + length;
  return true;
}

}  // namespace snug::server
