#include "server/node/gpu_use.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "proto/snug/status_macros.h"
#include "server/node/session.h"

namespace snug::server {

int64_t GpuUse::ours() const {
  int64_t bytes = 0;
  for (const auto& [attempt, of_it] : attempt_bytes) bytes += of_it;
  return bytes;
}

GpuUse Attribute(const GpuMemory& memory, const std::string& state_dir) {
  GpuUse use;
  use.complete = memory.processes.has_value();
  for (const GpuProcess& process : memory.processes.value_or(std::vector<GpuProcess>())) {
    const std::string attempt = AttemptOf(process.pid);
    if (!absl::StartsWith(attempt, state_dir + "/")) continue;
    use.complete &= process.bytes.has_value();
    if (process.bytes) use.attempt_bytes[attempt] += *process.bytes;
  }
  // A process may have grown between the two answers of the driver.
  use.others_bytes = std::max<int64_t>(0, memory.total_bytes - memory.free_bytes - use.ours());
  return use;
}

absl::StatusOr<GpuUse> ReadUse(const GpuDriver& driver, int index, const std::string& state_dir) {
  ASSIGN_OR_RETURN(const GpuMemory memory, driver.ReadMemory(index));
  return Attribute(memory, state_dir);
}

Gpus GpusForUs(const GpuDriver& driver, const std::string& state_dir) {
  Gpus gpus = driver.ReadGpus();
  if (!gpus.ok()) return gpus;
  for (absl::StatusOr<Gpu>& gpu : *gpus) {
    if (!gpu.ok()) continue;
    const absl::StatusOr<GpuUse> use = ReadUse(driver, gpu->index, state_dir);
    if (use.ok())
      gpu->free_bytes = std::min(gpu->total_bytes, gpu->free_bytes + use->ours());
    else
      gpu = use.status();  // The others can be used all the same.
  }
  return gpus;
}

}  // namespace snug::server
