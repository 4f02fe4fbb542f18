// An adapter's adapter_config.json.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "worker/program/files/adapter_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  const auto config = snug::program::ParseAdapterConfig(text, "input");
  if (!config.ok()) return 0;
  if (config->lora.rank < 1 || !std::isfinite(config->lora.alpha)) abort();
  return 0;
}
