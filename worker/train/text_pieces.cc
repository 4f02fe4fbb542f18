#include "worker/train/text_pieces.h"

#include <cstddef>

namespace snug::train {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Scan {
  size_t length = 0;   // Bytes that belong together.
  bool whole = false;  // They are a character.
  bool open = false;   // They may become one.
};

// The first character of `text`, by the table of well-formed sequences (Unicode 15, table 3-7).
Scan FirstOf(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {.length = 1, .whole = true};
  const size_t needed = first >= 0xC2 && first <= 0xDF   ? 2
                        : first >= 0xE0 && first <= 0xEF ? 3
                        : first >= 0xF0 && first <= 0xF4 ? 4
                                                         : 0;
  if (needed == 0) return {.length = 1};
  const unsigned char low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < needed; ++i) {
    if (i == text.size()) return {.length = i, .open = true};
    const bool fits = i == 1 ? byte(i) >= low && byte(i) <= high : (byte(i) & 0xC0) == 0x80;
    if (!fits) return {.length = i};
  }
  return {.length = needed, .whole = true};
}

}  // namespace

std::string TextPieces::Add(std::string_view bytes) {
  held_ += bytes;
  std::string_view rest = held_;
  std::string text;
  while (!rest.empty()) {
    const Scan scan = FirstOf(rest);
    if (scan.open) break;
    text += scan.whole ? rest.substr(0, scan.length) : kReplacement;
    rest.remove_prefix(scan.length);
  }
  held_ = std::string(rest);
  return text;
}

std::string TextPieces::End() {
  const bool cut = !held_.empty();
  held_.clear();
  return std::string(cut ? kReplacement : "");
}

}  // namespace snug::train
