// Where the slots of a tape live. In production: at their offsets of one arena. A test may place
// them otherwise, each by itself.
#ifndef WORKER_EXECUTE_SLOT_MEMORY_H_
#define WORKER_EXECUTE_SLOT_MEMORY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/execute/device.h"
#include "worker/execute/host_buffer.h"
#include "worker/program/tape.h"

namespace snug::execute {

// The executor calls Born before a slot's first instruction and Died after its last, once each per
// run of a tape.
class SlotMemory {
 public:
  virtual ~SlotMemory() = default;
  virtual absl::Status Born(const program::Tape& tape, int32_t slot) = 0;
  virtual absl::Status Died(const program::Tape& tape, int32_t slot) = 0;
  virtual char* At(const program::Tape& tape, int32_t slot) = 0;
};

// Every slot at its offset, of the arena or of the host's memory. Debug builds poison what has
// died, so that a late reader reads NaN: behind what was issued on the device's stream 0.
class ArenaMemory final : public SlotMemory {
 public:
  static absl::StatusOr<ArenaMemory> Allocate(Device& device, int64_t bytes,
                                              int64_t host_bytes = 0);

  absl::Status Born(const program::Tape& tape, int32_t slot) override;
  absl::Status Died(const program::Tape& tape, int32_t slot) override;
  char* At(const program::Tape& tape, int32_t slot) override;
  int64_t bytes() const { return buffer_.bytes(); }
  int64_t host_bytes() const { return host_.bytes(); }
  // For work between two runs of tapes.
  char* data() const { return buffer_.data(); }
  Device& device() const { return *device_; }

 private:
  explicit ArenaMemory(Device& device) : device_(&device) {}

  Device* device_;
  DeviceBuffer buffer_;
  HostBuffer host_;
};

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_SLOT_MEMORY_H_
