// The worker link's frames: however the bytes come in, the same messages come out.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "server/node/framing.h"

namespace {

// Up to the first error, which is the last word.
std::vector<std::string> Messages(const std::string& bytes, size_t piece) {
  snug::server::FrameReader reader(4096);
  std::vector<std::string> messages;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    reader.Add(absl::string_view(bytes).substr(at, piece));
    std::string message;
    while (true) {
      const absl::StatusOr<bool> more = reader.Next(message);
      if (!more.ok()) return messages;
      if (!*more) break;
      messages.push_back(message);
    }
  }
  return messages;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  const std::vector<std::string> messages = Messages(text, 1);
  if (messages != Messages(text, 7) || messages != Messages(text, size + 1)) abort();
  std::string again;
  for (const std::string& message : messages) again += snug::server::Frame(message);
  if (messages != Messages(again, 64)) abort();
  return 0;
}
