#include "worker/execute/allocator.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/program/tape.h"

namespace snug::execute {

int64_t CountedBytes(int64_t bytes) {
  return (bytes + program::kAlignment - 1) / program::kAlignment * program::kAlignment;
}

void TrackingAllocator::SetCap(int64_t bytes) {
  std::lock_guard lock(mutex_);
  cap_bytes_ = bytes;
}

TrackingAllocator::Usage TrackingAllocator::usage() const {
  std::lock_guard lock(mutex_);
  return {current_bytes_, peak_bytes_, cap_bytes_};
}

void TrackingAllocator::ResetPeak() {
  std::lock_guard lock(mutex_);
  peak_bytes_ = current_bytes_;
}

void TrackingAllocator::OpenBlock(int64_t bytes) {
  std::lock_guard lock(mutex_);
  if (block_.base != nullptr) throw std::logic_error("a block of memory is open already");
  const int64_t counted = CountedBytes(bytes);
  block_ = {.base = static_cast<char*>(TakeFromSource(counted)), .bytes = counted};
}

void TrackingAllocator::SealBlock() {
  std::lock_guard lock(mutex_);
  block_.sealed = true;
}

void TrackingAllocator::CloseBlock() {
  std::lock_guard lock(mutex_);
  current_bytes_ -= block_.bytes;
  source_.give_back(source_.self, block_.base);
  block_ = {};
}

void TrackingAllocator::OpenSlice(const Slice& slice) {
  std::lock_guard lock(mutex_);
  slice_ = slice;
  in_op_ = true;
  if (const auto arena = outside_.find(slice.base); arena != outside_.end()) {
    arena->second.begins_slices = true;
  }
  blocks_.clear();
  slice_peak_bytes_ = 0;
}

int64_t TrackingAllocator::CloseSlice() {
  std::lock_guard lock(mutex_);
  in_op_ = false;
  if (!blocks_.empty()) {
    throw SliceExceeded(absl::StrCat("op ", slice_.op, " of block ", slice_.block, " still holds ",
                                     blocks_.size(), " pieces of its workspace after its run"));
  }
  return slice_peak_bytes_;
}

void TrackingAllocator::AbandonSlice() {
  std::lock_guard lock(mutex_);
  in_op_ = false;
  blocks_.clear();
}

TrackingAllocator::Taken TrackingAllocator::Take(int64_t bytes) {
  std::lock_guard lock(mutex_);
  if (in_op_) return {TakeFromSlice(CountedBytes(bytes)), Origin::kSlice};
  return {TakeOutside(CountedBytes(bytes)), Origin::kOutside};
}

void TrackingAllocator::GiveBack(const Taken& taken) {
  std::lock_guard lock(mutex_);
  if (taken.origin == Origin::kSlice) {
    GiveBackPiece(taken.address);
  } else {
    GiveBackOutside(taken.address);
  }
}

void* TrackingAllocator::TakeOutside(int64_t bytes) {
  if (block_.base != nullptr && !block_.sealed) return TakeFromBlock(bytes);
  void* address = TakeFromSource(bytes);
  outside_[address] = {.bytes = bytes};
  return address;
}

void* TrackingAllocator::TakeFromSource(int64_t bytes) {
  if (bytes > cap_bytes_ - current_bytes_) {
    throw CapExceeded(absl::StrCat("out of memory: ", bytes, " bytes asked for, ", current_bytes_,
                                   " in use of the ", cap_bytes_,
                                   " that the cap leaves beside the process and mapped weights"));
  }
  void* address = source_.take(source_.self, bytes);
  if (address == nullptr) {
    throw CapExceeded(absl::StrCat("the device has no ", bytes, " bytes left"));
  }
  current_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, current_bytes_);
  return address;
}

void* TrackingAllocator::TakeFromBlock(int64_t bytes) {
  const int64_t begin = block_.given_bytes;
  if (bytes > block_.bytes - begin) {
    throw CapExceeded(absl::StrCat("out of memory: ", bytes, " bytes asked for, ", begin,
                                   " in use of the ", block_.bytes, " that were taken at once"));
  }
  block_.given_bytes += bytes;
  return block_.base + begin;
}

// First fit: ops take a handful of pieces and give them back in nearly the same order.
void* TrackingAllocator::TakeFromSlice(int64_t bytes) {
  int64_t offset = 0;
  for (const auto& [begin, taken] : blocks_) {
    if (begin - offset >= bytes) break;
    offset = begin + taken;
  }
  if (offset + bytes > slice_.bytes) RefuseSlice(bytes, offset);
  blocks_[offset] = bytes;
  slice_peak_bytes_ = std::max(slice_peak_bytes_, offset + bytes);
  return slice_.base + offset;
}

void TrackingAllocator::RefuseSlice(int64_t bytes, int64_t in_use) const {
  throw SliceExceeded(absl::StrCat("op ", slice_.op, " of block ", slice_.block, " declares ",
                                   slice_.bytes, " bytes of workspace and asked for ", bytes,
                                   " more with ", in_use, " in use"));
}

void TrackingAllocator::GiveBackAddress(void* address) {
  if (address == nullptr) return;
  std::lock_guard lock(mutex_);
  if (GiveBackPiece(address)) return;
  const auto found = outside_.find(address);
  if (found != outside_.end() && !found->second.begins_slices) GiveBackOutside(address);
}

// A piece of a slice that is closed already was reported when it closed.
bool TrackingAllocator::GiveBackPiece(void* address) {
  return in_op_ && blocks_.erase(static_cast<char*>(address) - slice_.base) > 0;
}

bool TrackingAllocator::InBlock(const void* address) const {
  return address >= block_.base && address < block_.base + block_.bytes;
}

void TrackingAllocator::GiveBackOutside(void* address) {
  if (InBlock(address)) return;
  current_bytes_ -= outside_.at(address).bytes;
  outside_.erase(address);
  source_.give_back(source_.self, address);
}

}  // namespace snug::execute
