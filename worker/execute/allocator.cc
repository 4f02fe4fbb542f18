#include "worker/execute/allocator.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/program/tape.h"

namespace snug::execute {
namespace {

// Above the default CPU allocator's priority 0, so that ours stays whatever registers later.
constexpr uint8_t kPriority = 10;

int64_t Rounded(size_t bytes) {
  const auto alignment = static_cast<size_t>(program::kAlignment);
  return static_cast<int64_t>((bytes + alignment - 1) / alignment * alignment);
}

}  // namespace

TrackingAllocator& TrackingAllocator::Install() {
  // Never destroyed: tensors in static storage of ATen are released after main.
  static TrackingAllocator* const allocator = [] {
    auto* made = new TrackingAllocator;
    c10::SetCPUAllocator(made, kPriority);
    return made;
  }();
  return *allocator;
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

c10::DataPtr TrackingAllocator::allocate(size_t bytes) {
  const c10::Device cpu(c10::DeviceType::CPU);
  if (bytes == 0) return {nullptr, nullptr, &ReleaseRaw, cpu};
  std::lock_guard lock(mutex_);
  void* address = in_op_ ? TakeFromSlice(Rounded(bytes)) : TakeOutside(Rounded(bytes));
  // The context is the data: oneDNN's raw_allocate insists on it.
  return {address, address, in_op_ ? &ReleasePiece : &ReleaseOutside, cpu};
}

c10::DeleterFnPtr TrackingAllocator::raw_deleter() const { return &ReleaseRaw; }

void TrackingAllocator::copy_data(void* to, const void* from, size_t bytes) const {
  default_copy_data(to, from, bytes);
}

void* TrackingAllocator::TakeOutside(int64_t bytes) {
  if (bytes > cap_bytes_ - current_bytes_) {
    throw CapExceeded(absl::StrCat("out of memory: ", bytes, " bytes asked for, ", current_bytes_,
                                   " in use of the ", cap_bytes_,
                                   " that the cap leaves beside the process and mapped weights"));
  }
  void* address =
      std::aligned_alloc(static_cast<size_t>(program::kAlignment), static_cast<size_t>(bytes));
  if (address == nullptr) {
    throw CapExceeded(absl::StrCat("the system has no ", bytes, " bytes left"));
  }
  outside_[address] = {.bytes = bytes};
  current_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, current_bytes_);
  return address;
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

void TrackingAllocator::ReleaseOutside(void* address) {
  TrackingAllocator& self = Install();
  std::lock_guard lock(self.mutex_);
  self.GiveBackOutside(address);
}

void TrackingAllocator::ReleasePiece(void* address) {
  TrackingAllocator& self = Install();
  std::lock_guard lock(self.mutex_);
  self.GiveBackPiece(address);
}

// An arena is never a bare address: what has its address was its first piece.
void TrackingAllocator::ReleaseRaw(void* address) {
  if (address == nullptr) return;
  TrackingAllocator& self = Install();
  std::lock_guard lock(self.mutex_);
  if (self.GiveBackPiece(address)) return;
  const auto found = self.outside_.find(address);
  if (found != self.outside_.end() && !found->second.begins_slices) self.GiveBackOutside(address);
}

// A piece of a slice that is closed already was reported when it closed.
bool TrackingAllocator::GiveBackPiece(void* address) {
  return in_op_ && blocks_.erase(static_cast<char*>(address) - slice_.base) > 0;
}

void TrackingAllocator::GiveBackOutside(void* address) {
  current_bytes_ -= outside_.at(address).bytes;
  outside_.erase(address);
  std::free(address);
}

}  // namespace snug::execute
