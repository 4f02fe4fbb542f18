#include "worker/execute/cpu_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstdlib>

#include "worker/program/tape.h"

namespace snug::execute {
namespace {

// Above the default CPU allocator's priority 0, so that ours stays whatever registers later.
constexpr uint8_t kPriority = 10;

void* TakeFromSystem(void* /*self*/, int64_t bytes) {
  return std::aligned_alloc(static_cast<size_t>(program::kAlignment), static_cast<size_t>(bytes));
}

void GiveToSystem(void* /*self*/, void* address) { std::free(address); }

// What ATen calls. Deleters say what is given back; ATen hands them the address alone.
class AtenAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &ReleaseRaw, cpu};
    const auto [address, origin] = CpuAllocator().Take(static_cast<int64_t>(bytes));
    const bool piece = origin == TrackingAllocator::Origin::kSlice;
    // The context is the data: oneDNN's raw_allocate insists on it.
    return {address, address, piece ? &ReleasePiece : &ReleaseOutside, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &ReleaseRaw; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static void ReleaseOutside(void* address) {
    CpuAllocator().GiveBack({address, TrackingAllocator::Origin::kOutside});
  }
  static void ReleasePiece(void* address) {
    CpuAllocator().GiveBack({address, TrackingAllocator::Origin::kSlice});
  }
  static void ReleaseRaw(void* address) { CpuAllocator().GiveBackAddress(address); }
};

}  // namespace

TrackingAllocator& CpuAllocator() {
  // Never destroyed: tensors in static storage of ATen are released after main.
  static TrackingAllocator* const allocator = [] {
    c10::SetCPUAllocator(new AtenAllocator, kPriority);
    return new TrackingAllocator({.take = &TakeFromSystem, .give_back = &GiveToSystem});
  }();
  return *allocator;
}

}  // namespace snug::execute
