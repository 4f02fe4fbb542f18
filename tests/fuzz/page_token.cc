// Page tokens: only those that were made for a list are of it.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "server/api/page_token.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const snug::server::PageTokens tokens;
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  if (!text.empty() && tokens.Read(text, "filter").ok()) abort();
  // Whatever the bytes are: as a place, as a filter, and as both.
  if (tokens.Read(tokens.Make("7", text), text).value_or("") != "7") abort();
  if (tokens.Read(tokens.Make(text, "filter"), "filter").value_or("?" + text) != text) abort();
  if (tokens.Read(tokens.Make(text, text), text + ".").ok()) abort();
  return 0;
}
