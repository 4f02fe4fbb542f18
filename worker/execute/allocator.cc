#include "worker/execute/allocator.h"

#include <algorithm>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "worker/program/tape.h"

namespace snug::execute {
namespace {

// Names the calling thread. Unlike its id, no later thread gets it.
int64_t NumberOfThread() {
  static std::atomic<int64_t> threads = 0;
  thread_local const int64_t number = threads++;
  return number;
}

}  // namespace

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
  slices_[NumberOfThread()] = {.slice = slice, .open = true};
  if (const auto arena = outside_.find(slice.base); arena != outside_.end()) {
    arena->second.begins_slices = true;
  }
}

int64_t TrackingAllocator::CloseSlice() {
  std::lock_guard lock(mutex_);
  OpSlice& op = slices_.at(NumberOfThread());
  op.open = false;
  if (!op.pieces.empty()) {
    throw SliceExceeded(absl::StrCat("op ", op.slice.op, " of block ", op.slice.block,
                                     " still holds ", op.pieces.size(),
                                     " pieces of its workspace after its run"));
  }
  return op.peak_bytes;
}

void TrackingAllocator::AbandonSlice() {
  std::lock_guard lock(mutex_);
  slices_[NumberOfThread()] = {};
}

TrackingAllocator::OpSlice* TrackingAllocator::SliceInUse() {
  if (const auto own = slices_.find(NumberOfThread()); own != slices_.end())
    return own->second.open ? &own->second : nullptr;
  for (auto& [thread, op] : slices_) {
    if (op.open) return &op;
  }
  return nullptr;
}

TrackingAllocator::Taken TrackingAllocator::Take(int64_t bytes) {
  std::lock_guard lock(mutex_);
  if (OpSlice* const op = SliceInUse(); op != nullptr)
    return {TakeFromSlice(*op, CountedBytes(bytes)), Origin::kSlice};
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
void* TrackingAllocator::TakeFromSlice(OpSlice& op, int64_t bytes) {
  const Slice& slice = op.slice;
  int64_t offset = 0;
  for (const auto& [begin, taken] : op.pieces) {
    if (begin - offset >= bytes) break;
    offset = begin + taken;
  }
  if (offset + bytes > slice.bytes)
    throw SliceExceeded(absl::StrCat("op ", slice.op, " of block ", slice.block, " declares ",
                                     slice.bytes, " bytes of workspace and asked for ", bytes,
                                     " more with ", offset, " in use"));
  op.pieces[offset] = bytes;
  op.peak_bytes = std::max(op.peak_bytes, offset + bytes);
  return slice.base + offset;
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
  return std::any_of(slices_.begin(), slices_.end(), [&](auto& entry) {
    OpSlice& op = entry.second;
    return op.open && op.pieces.erase(static_cast<char*>(address) - op.slice.base) > 0;
  });
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
