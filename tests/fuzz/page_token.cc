// Page tokens: only those that were made for a list are of it.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "server/api/page_token.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const snug::server::PageTokens tokens;
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  if (!text.empty() && tokens.Read(text, "filter").ok()) abort();
  if (tokens.Read(tokens.Make(static_cast<int64_t>(size), text), text).value_or(-1) !=
      static_cast<int64_t>(size))
    abort();
  if (tokens.Read(tokens.Make(7, text), text + ".").ok()) abort();
  return 0;
}
