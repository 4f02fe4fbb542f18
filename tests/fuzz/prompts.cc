// A file of prompts, as the worker answers them and as the daemon takes the longest one's length.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/data/prompts.h"
#include "tests/fuzz/folder.h"
#include "worker/train/prompts.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  constexpr int32_t kVocabulary = 3;
  static const std::string path = Folder("prompts") + "/prompts.json";
  Write(path, std::string_view(reinterpret_cast<const char*>(bytes), size));
  const auto prompts = snug::train::Prompts::Read(path, kVocabulary);
  const auto longest = snug::server::LongestPrompt(path);
  if (!prompts.ok()) return 0;
  if (longest.ok() && *longest != prompts->longest()) abort();
  for (const snug::train::Prompt& prompt : prompts->prompts()) {
    for (const int32_t id : prompt.ids)
      if (id < 0 || id >= kVocabulary) abort();
    // The beginning of a text can only lack a space.
    const std::string inner = prompts->TextOf(prompt.ids, false);
    const std::string first = prompts->TextOf(prompt.ids, true);
    if (first != inner && " " + first != inner) abort();
  }
  return 0;
}
