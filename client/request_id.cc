#include "client/request_id.h"

#include <cstdint>
#include <random>

#include "absl/strings/str_format.h"

namespace snug::client {

std::string NewRequestId() {
  std::random_device random;
  const auto word = [&] { return static_cast<uint32_t>(random()); };
  const uint32_t b = word(), c = word();
  return absl::StrFormat("%08x-%04x-4%03x-%04x-%04x%08x", word(), b >> 16, b & 0xFFF,
                         0x8000 | (c >> 16 & 0x3FFF), c & 0xFFFF, word());
}

}  // namespace snug::client
