// A checkpoint's MANIFEST.json beside one file, and the names of checkpoints.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "server/artifact/checkpoints.h"
#include "tests/fuzz/folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace snug::server;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  static const std::string folder = Folder("step-000001.e1");
  static const bool made = (Write(folder + "/weights", "step 1"), true);
  Write(folder + "/MANIFEST.json", text);
  const auto record = VerifyCheckpoint("job", folder);
  if (made && record.ok() && (record->step != 1 || record->epoch != 1)) abort();
  const auto name = ParseCheckpointName(std::string(text));
  if (name && (name->step < 0 || name->epoch < 1)) abort();
  return 0;
}
