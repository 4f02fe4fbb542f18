// The metrics.jsonl of an attempt that another one goes on from. The first two bytes are the step
// of the checkpoint and the step that the job begins behind.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "tests/fuzz/folder.h"
#include "worker/train/metrics_log.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace snug::train;
  if (size < 2) return 0;
  static const std::string folder = Folder("metrics");
  const std::string first = folder + "/first", second = folder + "/second", third = folder + "/3";
  const std::string text(reinterpret_cast<const char*>(bytes) + 2, size - 2);
  const int64_t step = bytes[0], begin = bytes[1];
  unlink(second.c_str());
  unlink(third.c_str());
  Write(first, text);
  auto log = MetricsLog::Resume(second, {.previous = first, .step = step, .begin = begin});
  if (!log.ok()) return 0;
  const std::string kept = Read(second);
  if (log->steps().last != step || !text.starts_with(kept)) abort();
  if (!kept.empty() && kept.back() != '\n') abort();
  // It goes on behind the step, and what it writes can be gone on from.
  if (!log->Append(StepMetrics{.global_step = step + 1}).ok()) abort();
  const auto next = MetricsLog::Resume(third, {.previous = second, .step = step, .begin = begin});
  if (!next.ok() || Read(third) != kept) abort();
  return 0;
}
