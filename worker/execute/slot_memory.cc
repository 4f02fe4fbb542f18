#include "worker/execute/slot_memory.h"

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

absl::StatusOr<ArenaMemory> ArenaMemory::Allocate(Device& device, int64_t bytes) {
  ArenaMemory memory(device);
  ASSIGN_OR_RETURN(memory.buffer_, DeviceBuffer::Allocate(device, bytes));
  return memory;
}

absl::Status ArenaMemory::Born(const program::Tape& tape, int32_t slot) {
  const program::Slot& place = tape.slots[static_cast<size_t>(slot)];
  if (place.offset < 0 || place.offset + place.bytes > buffer_.bytes()) {
    return absl::InternalError(absl::StrCat("slot ", slot, " at [", place.offset, ", ",
                                            place.offset + place.bytes, ") leaves the arena of ",
                                            buffer_.bytes(), " bytes"));
  }
  return absl::OkStatus();
}

absl::Status ArenaMemory::Died(const program::Tape& tape, int32_t slot) {
  if (!kPoison) return absl::OkStatus();
  return FillMemory(*device_, At(tape, slot), kPoisonByte,
                    tape.slots[static_cast<size_t>(slot)].bytes);
}

char* ArenaMemory::At(const program::Tape& tape, int32_t slot) {
  return buffer_.data() + tape.slots[static_cast<size_t>(slot)].offset;
}

}  // namespace snug::execute
