// A model's config.json. What is accepted is within the limits that another process's word is held
// to.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "worker/program/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace snug::program;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const auto config = ParseModelConfig(text, "input");
  if (config.ok() && !CheckModelConfig(*config).ok()) abort();
  return 0;
}
