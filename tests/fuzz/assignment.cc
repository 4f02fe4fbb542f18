// What a worker is told to do: assignment.binpb, or, as the first byte says, the JobSpec in JSON
// of tools that run without a daemon.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/fuzz/folder.h"
#include "worker/link/assignment.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace snug::link;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  if (bytes[0] % 2 == 1) {
    const auto spec = ParseSpecJson(std::string(text));
    if (!spec.ok() && spec.status().message().empty()) abort();
    return 0;
  }
  static const std::string path = Folder("assignment") + "/assignment.binpb";
  Write(path, text);
  const auto attempt = ReadAssignment(path);
  if (!attempt.ok()) return 0;
  if (attempt->job_id.empty() || attempt->epoch < 1 || attempt->cap_bytes < 1) abort();
  if (attempt->train_data.empty() && !attempt->answers.has_value()) abort();
  return 0;
}
