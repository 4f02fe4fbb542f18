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

absl::StatusOr<bool> FrameReader::Next(std::string& message) {
  uint64_t length = 0;
  size_t head = 0;
  while (true) {
    if (head == buffer_.size()) return false;
    if (head == kMaxLengthBytes) return absl::InvalidArgumentError("a frame's length is no varint");
    const auto byte = static_cast<uint8_t>(buffer_[head]);
    length |= static_cast<uint64_t>(byte & 0x7F) << (7 * head);
    ++head;
    if (byte < 0x80) break;
  }
  if (length > kMaxFrameBytes)
    return absl::InvalidArgumentError(
        absl::StrCat("a frame of ", length, " bytes; at most ", kMaxFrameBytes));
  if (buffer_.size() - head < length) return false;
  message = buffer_.substr(head, length);
  buffer_.erase(0, head + length);
  return true;
}

}  // namespace snug::server
