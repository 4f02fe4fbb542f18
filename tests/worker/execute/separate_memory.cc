#include "tests/worker/execute/separate_memory.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace snug::execute {
namespace {

// Four cache lines: wider than any vector store that runs over.
constexpr int64_t kGuardBytes = 256;
constexpr unsigned char kGuardByte = 0xA5;
constexpr int kPoisonByte = 0xFF;  // NaN in fp32 and bf16.

bool Intact(const char* guard) {
  for (int64_t i = 0; i < kGuardBytes; ++i) {
    if (static_cast<unsigned char>(guard[i]) != kGuardByte) return false;
  }
  return true;
}

// The first of its 4 byte words that is still poison, in bytes from its beginning; else -1.
int64_t FirstUnwritten(const char* value, int64_t bytes) {
  for (int64_t i = 0; i + 4 <= bytes; i += 4) {
    uint32_t word;
    std::memcpy(&word, value + i, sizeof(word));
    if (word == 0xFFFFFFFFu) return i;
  }
  return -1;
}

}  // namespace

SeparateMemory::~SeparateMemory() {
  for (const auto& [slot, piece] : live_) piece.source->GiveBack(piece.first_guard);
}

absl::Status SeparateMemory::Born(const program::Tape& tape, int32_t slot) {
  const program::Slot& life = tape.slots[static_cast<size_t>(slot)];
  const int64_t bytes = life.bytes;
  PieceSource& source = life.region == program::Region::kHost ? host_ : source_;
  char* piece = source.Take(bytes, kGuardBytes);
  if (piece == nullptr) return absl::ResourceExhaustedError("no memory for a slot");
  std::memset(piece, kGuardByte, kGuardBytes);
  std::memset(piece + kGuardBytes, kPoisonByte, static_cast<size_t>(bytes));
  std::memset(piece + kGuardBytes + bytes, kGuardByte, kGuardBytes);
  live_[slot] = {&source, piece};
  return absl::OkStatus();
}

absl::Status SeparateMemory::Died(const program::Tape& tape, int32_t slot) {
  const program::Slot& life = tape.slots[static_cast<size_t>(slot)];
  const int64_t bytes = life.bytes;
  const auto found = live_.find(slot);
  char* piece = found->second.first_guard;
  const bool before = Intact(piece), behind = Intact(piece + kGuardBytes + bytes);
  const bool value = life.region != program::Region::kWorkspace && filled_.insert(slot).second;
  const int64_t unwritten = value ? FirstUnwritten(piece + kGuardBytes, bytes) : -1;
  std::memset(piece, kPoisonByte, static_cast<size_t>(bytes + 2 * kGuardBytes));
  found->second.source->GiveBack(piece);
  live_.erase(found);
  if (unwritten >= 0) {
    return absl::InternalError(absl::StrCat("slot ", slot, " of ", bytes,
                                            " bytes was never written from byte ", unwritten,
                                            " on, or holds NaN"));
  }
  if (before && behind) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("something was written ", before ? "behind" : "before",
                                          " slot ", slot, " of ", bytes, " bytes"));
}

char* SeparateMemory::At(const program::Tape& /*tape*/, int32_t slot) {
  const auto found = live_.find(slot);
  return found == live_.end() ? nullptr : found->second.first_guard + kGuardBytes;
}

}  // namespace snug::execute
