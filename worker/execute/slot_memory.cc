#include "worker/execute/slot_memory.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/execute/host_copy.h"

namespace snug::execute {
namespace {

#ifdef NDEBUG
constexpr bool kPoison = false;
#else
constexpr bool kPoison = true;
#endif

constexpr int kPoisonByte = 0xFF;  // 0xFFFFFFFF and 0xFFFF are NaN in fp32 and bf16.

}  // namespace

absl::StatusOr<ArenaMemory> ArenaMemory::Allocate(Device& device, int64_t bytes,
                                                  int64_t host_bytes) {
  ArenaMemory memory(device);
  ASSIGN_OR_RETURN(memory.host_, HostBuffer::Allocate(device, host_bytes));
  ASSIGN_OR_RETURN(memory.buffer_, DeviceBuffer::Allocate(device, bytes));
  return memory;
}

absl::Status ArenaMemory::Born(const program::Tape& tape, int32_t slot) {
  const program::Slot& place = tape.slots[static_cast<size_t>(slot)];
  const bool on_host = place.region == program::Region::kHost;
  const int64_t room = on_host ? host_.bytes() : buffer_.bytes();
  if (place.offset < 0 || place.offset + place.bytes > room) {
    return absl::InternalError(
        absl::StrCat("slot ", slot, " at [", place.offset, ", ", place.offset + place.bytes,
                     ") leaves the ", on_host ? "host's memory" : "arena", " of ", room, " bytes"));
  }
  return absl::OkStatus();
}

absl::Status ArenaMemory::Died(const program::Tape& tape, int32_t slot) {
  if (!kPoison) return absl::OkStatus();
  const program::Slot& place = tape.slots[static_cast<size_t>(slot)];
  if (place.region == program::Region::kHost) {
    // Elsewhere what read it may only have been issued.
    if (!device_->host_reads_memory()) return absl::OkStatus();
    std::memset(At(tape, slot), kPoisonByte, static_cast<size_t>(place.bytes));
    return absl::OkStatus();
  }
  return FillMemory(*device_, At(tape, slot), kPoisonByte, place.bytes);
}

char* ArenaMemory::At(const program::Tape& tape, int32_t slot) {
  const program::Slot& place = tape.slots[static_cast<size_t>(slot)];
  return (place.region == program::Region::kHost ? host_.data() : buffer_.data()) + place.offset;
}

}  // namespace snug::execute
