// Whose the memory of a GPU is, by the driver's word: which attempt's, or somebody else's.
#ifndef SERVER_NODE_GPU_USE_H_
#define SERVER_NODE_GPU_USE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/node/nvml.h"

namespace snug::server {

struct GpuUse {
  std::map<std::string, int64_t> attempt_bytes;  // Of this daemon, by attempt dir.
  bool complete = true;      // Whether that is all of ours: false where the driver does not say it.
  int64_t others_bytes = 0;  // All else that is not free.
  int64_t total_bytes = 0;   // Now: switching ECC on takes some of it.

  int64_t ours() const;
};

using GpuUses = std::map<std::string, absl::StatusOr<GpuUse>>;  // By device.

// Processes are told by their mark (session.h), so that those of a daemon with another state
// directory are strangers. In a container whose process ids the driver does not know, everything
// is a stranger's.
GpuUse Attribute(const GpuReading& reading, const std::string& state_dir);

// Of the GPU that the device was made of, wherever it is counted now. An error: nothing new may go
// there, and why, in words for `snug devices`.
absl::StatusOr<GpuUse> UseOf(const Device& device, const GpuReadings& readings,
                             const std::string& state_dir);

// What a daemon that starts finds: bytes of workers that outlived an earlier one count as free, as
// the ledger knows of them.
Gpus GpusForUs(const GpuReadings& readings, const std::string& state_dir);

// The GPUs of this machine, looked at again and again. A driver that failed is let go and opened
// anew at the next look: after a reset, a reload or an upgrade the old library never recovers.
class GpuWatch {
 public:
  explicit GpuWatch(std::string library) : library_(std::move(library)) {}

  // One thread at a time. Takes milliseconds; minutes when a GPU is in trouble.
  GpuReadings Look();

 private:
  const std::string library_;
  std::unique_ptr<GpuDriver> driver_;  // Null: to be opened.
};

}  // namespace snug::server

#endif  // SERVER_NODE_GPU_USE_H_
