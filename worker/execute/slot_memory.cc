#include "worker/execute/slot_memory.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"

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
  ArenaMemory memory;
  memory.poisons_ = kPoison && device.host_reads_memory();
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
  if (poisons_) {
    std::memset(At(tape, slot), kPoisonByte,
                static_cast<size_t>(tape.slots[static_cast<size_t>(slot)].bytes));
  }
  return absl::OkStatus();
}

char* ArenaMemory::At(const program::Tape& tape, int32_t slot) {
  return buffer_.data() + tape.slots[static_cast<size_t>(slot)].offset;
}

}  // namespace snug::execute
