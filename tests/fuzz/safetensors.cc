// The header of a safetensors file, and what lies behind it.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "worker/program/files/safetensors_header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace snug::program;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const auto tensors = ParseSafetensorsHeader(text, "input");
  if (!tensors.ok()) return 0;
  int64_t end = 0;
  for (const auto& [name, tensor] : *tensors) {
    if (tensor.begin < 0 || tensor.end < tensor.begin) abort();
    end = tensor.end > end ? tensor.end : end;
  }
  // A file of any other length has something left over, or lacks something.
  const bool whole = CheckSafetensorsLayout(*tensors, end, "input").ok();
  if (whole && CheckSafetensorsLayout(*tensors, end + 1, "input").ok()) abort();
  return 0;
}
