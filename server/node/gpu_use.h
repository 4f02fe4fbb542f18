// Whose the memory of a GPU is, by the driver's word: which attempt's, or somebody else's.
#ifndef SERVER_NODE_GPU_USE_H_
#define SERVER_NODE_GPU_USE_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "server/node/nvml.h"

namespace snug::server {

struct GpuUse {
  std::map<std::string, int64_t> attempt_bytes;  // Of this daemon, by attempt dir.
  bool complete = true;      // Whether that is all of ours: false where the driver does not say it.
  int64_t others_bytes = 0;  // All else that is not free.

  int64_t ours() const;
};

// Processes are told by their mark (session.h), so that those of a daemon with another state
// directory are strangers. In a container whose process ids the driver does not know, everything
// is a stranger's.
GpuUse Attribute(const GpuMemory& memory, const std::string& state_dir);

absl::StatusOr<GpuUse> ReadUse(const GpuDriver& driver, int index, const std::string& state_dir);

// What a daemon that starts finds: bytes of workers that outlived an earlier one count as free, as
// the ledger knows of them.
Gpus GpusForUs(const GpuDriver& driver, const std::string& state_dir);

}  // namespace snug::server

#endif  // SERVER_NODE_GPU_USE_H_
