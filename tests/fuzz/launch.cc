// What snug-launch is asked for: words in the text itself, all of them and in its order.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "server/shim/launch_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  std::string text(reinterpret_cast<const char*>(bytes), size);
  snug::shim::LaunchRequest request;
  if (!snug::shim::SplitLaunchRequest(text, request)) return 0;
  auto& [arguments, environment] = request;
  if (arguments.size() < 2 || arguments.back() != nullptr || environment.back() != nullptr) abort();
  const char* at = text.c_str() + std::strlen(text.c_str()) + 1;
  for (const auto* words : {&arguments, &environment}) {
    for (size_t i = 0; i + 1 < words->size(); ++i) {
      if ((*words)[i] != at) abort();
      at += std::strlen(at) + 1;
    }
  }
  if (at != text.data() + text.size()) abort();
  return 0;
}
