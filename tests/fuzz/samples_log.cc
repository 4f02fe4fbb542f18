// The samples.jsonl of an attempt that another one goes on from. The first byte is the step.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tests/fuzz/folder.h"
#include "worker/train/samples_log.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using snug::train::BeginSamples;
  if (size == 0) return 0;
  static const std::string folder = Folder("samples");
  const std::string first = folder + "/first", second = folder + "/second", third = folder + "/3";
  const std::string text(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  Write(first, text);
  if (!BeginSamples(second, first, bytes[0]).ok()) return 0;
  const std::string kept = Read(second);
  if (!text.starts_with(kept) || (!kept.empty() && kept.back() != '\n')) abort();
  if (!BeginSamples(third, second, bytes[0]).ok() || Read(third) != kept) abort();
  return 0;
}
