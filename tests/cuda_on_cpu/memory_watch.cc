#include "tests/cuda_on_cpu/memory_watch.h"

#include <link.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "tests/cuda_on_cpu/emulator.h"

namespace snug::cuda_on_cpu {
namespace {

struct Region {
  uintptr_t begin = 0, end = 0;
  bool Holds(uintptr_t address, size_t bytes) const {
    return address >= begin && address + bytes <= end;
  }
};

Region RegionOf(const void* begin, size_t bytes) {
  const auto at = reinterpret_cast<uintptr_t>(begin);
  return {at, at + bytes};
}

// What is known of one byte in this launch. `reader` is one of the threads that have read it since
// it was written last; a second one sets `many_readers`, one of another warp `many_warps`, and the
// later is kept.
struct ByteHistory {
  Moment writer, reader;
  bool written = false, read = false, atomic = false, many_readers = false, many_warps = false;
};

constexpr uintptr_t kPageBytes = 4096;

// 0xffd3 twice: NaN as fp32, bf16 and fp16, with a payload that no arithmetic gives.
constexpr uintptr_t kWordBytes = 4;
constexpr uint32_t kUnwrittenWord = 0xffd3ffd3;
constexpr std::array<uint8_t, kWordBytes> kUnwrittenBytes = {0xd3, 0xff, 0xd3, 0xff};
using Page = std::array<ByteHistory, kPageBytes>;

class Watch {
 public:
  void Add(const void* begin, size_t bytes) {
    allocations_[reinterpret_cast<uintptr_t>(begin)] = RegionOf(begin, bytes);
  }
  size_t Remove(const void* begin) {
    const auto found = allocations_.find(reinterpret_cast<uintptr_t>(begin));
    if (found == allocations_.end()) return 0;
    const size_t bytes = found->second.end - found->second.begin;
    allocations_.erase(found);
    return bytes;
  }

  void Launch(const void* parameters, size_t bytes) {
    parameters_ = RegionOf(parameters, bytes);
    global_.clear();
    shared_.clear();
    if (image_.empty()) dl_iterate_phdr(&AddSegments, &image_);
  }
  void Block() { shared_.clear(); }
  void Thread(const Moment* now, const void* stack, size_t bytes) {
    now_ = now;
    stack_ = RegionOf(stack, bytes);
  }

  bool watching() const { return now_ != nullptr; }

  void Access(uintptr_t address, size_t bytes, cuda_on_cpu::Access access) {
    if (stack_.Holds(address, bytes)) return;
    const bool constant =
        parameters_.Holds(address, bytes) || RegionOf(&here, sizeof(here)).Holds(address, bytes);
    if (constant && access == cuda_on_cpu::Access::kRead) return;
    if (InAllocation(address, bytes)) return RecordGlobal(address, bytes, access);
    for (const Segment& segment : image_) {
      if (!segment.region.Holds(address, bytes)) continue;
      if (!segment.writable) return;  // Constants.
      return RecordShared(address, bytes, access);
    }
    FailAt(address, bytes, access, "outside of all memory that the launch may use");
  }

 private:
  struct Segment {
    Region region;
    bool writable = false;
  };
  using Pages = std::unordered_map<uintptr_t, std::unique_ptr<Page>>;

  static int AddSegments(dl_phdr_info* info, size_t, void* list) {
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const ElfW(Phdr)& header = info->dlpi_phdr[i];
      if (header.p_type != PT_LOAD) continue;
      const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
      static_cast<std::vector<Segment>*>(list)->push_back(
          {{begin, begin + header.p_memsz}, (header.p_flags & PF_W) != 0});
    }
    return 0;
  }

  bool InAllocation(uintptr_t address, size_t bytes) const {
    auto next = allocations_.upper_bound(address);
    return next != allocations_.begin() && (--next)->second.Holds(address, bytes);
  }

  static ByteHistory& HistoryOf(Pages& pages, uintptr_t address) {
    std::unique_ptr<Page>& page = pages[address / kPageBytes];
    if (page == nullptr) page = std::make_unique<Page>();
    return (*page)[address % kPageBytes];
  }

  void RecordGlobal(uintptr_t address, size_t bytes, cuda_on_cpu::Access access) {
    if (access != cuda_on_cpu::Access::kWrite &&
        HoldsUnwritten(reinterpret_cast<const void*>(address), bytes))
      FailAt(address, bytes, access, "global memory that nobody has written");
    Record(global_, address, bytes, access);
  }

  void RecordShared(uintptr_t address, size_t bytes, cuda_on_cpu::Access access) {
    for (size_t i = 0; i < bytes && access != cuda_on_cpu::Access::kWrite; ++i) {
      if (!HistoryOf(shared_, address + i).written)
        FailAt(address, bytes, access, "shared memory that this block has not written");
    }
    Record(shared_, address, bytes, access);
  }

  void Record(Pages& pages, uintptr_t address, size_t bytes, cuda_on_cpu::Access access) {
    for (size_t i = 0; i < bytes; ++i) {
      ByteHistory& byte = HistoryOf(pages, address + i);
      const bool both_atomic = byte.atomic && access == cuda_on_cpu::Access::kAtomic;
      if (byte.written && !both_atomic && !OrderedAfter(byte.writer))
        FailRace(address, bytes, access, byte.writer, "written");
      if (access == cuda_on_cpu::Access::kRead) {
        byte.many_readers |= byte.read && !Same(byte.reader);
        byte.many_warps |= byte.read && !SameWarp(byte.reader);
        byte.read = true;
        byte.reader = *now_;
        continue;
      }
      if (byte.read && !OrderedAfterReaders(byte))
        FailRace(address, bytes, access, byte.reader, "read");
      byte = {};
      byte.writer = *now_;
      byte.written = true;
      byte.atomic = access == cuda_on_cpu::Access::kAtomic;
    }
  }

  bool Same(const Moment& then) const {
    return then.block == now_->block && then.thread == now_->thread;
  }
  bool SameWarp(const Moment& then) const {
    return then.block == now_->block && then.thread / 32 == now_->thread / 32;
  }
  bool LaterPhase(const Moment& then) const {
    return then.block == now_->block && then.block_phase != now_->block_phase;
  }
  // Whether what happened `then` is over for the running thread.
  bool OrderedAfter(const Moment& then) const {
    if (Same(then) || LaterPhase(then)) return true;
    return SameWarp(then) && then.warp_phase != now_->warp_phase;
  }
  // Of several readers only the last is known; an earlier one lies in the same phase or in one
  // before it.
  bool OrderedAfterReaders(const ByteHistory& byte) const {
    if (!byte.many_readers) return OrderedAfter(byte.reader);
    return LaterPhase(byte.reader) || (!byte.many_warps && SameWarp(byte.reader) &&
                                       byte.reader.warp_phase != now_->warp_phase);
  }

  [[noreturn]] void FailRace(uintptr_t address, size_t bytes, cuda_on_cpu::Access access,
                             const Moment& other, const char* done) const {
    char what[128];
    std::snprintf(what, sizeof(what),
                  "a race: %s by thread %u of block %u, which nothing orders before this", done,
                  other.thread, other.block);
    FailAt(address, bytes, access, what);
  }
  [[noreturn]] void FailAt(uintptr_t address, size_t bytes, cuda_on_cpu::Access access,
                           const char* what) const {
    static constexpr const char* kNames[] = {"read", "write", "atomic operation"};
    Fail("%s of %zu bytes at 0x%zx by thread %u of block %u: %s", kNames[static_cast<int>(access)],
         bytes, static_cast<size_t>(address), now_->thread, now_->block, what);
  }

  std::map<uintptr_t, Region> allocations_;
  std::vector<Segment> image_;
  Region parameters_, stack_;
  const Moment* now_ = nullptr;
  Pages global_, shared_;
};

Watch& TheWatch() {
  static Watch watch;
  return watch;
}

}  // namespace

bool Watching() {
#ifdef __SANITIZE_ADDRESS__
  return false;
#else
  return true;
#endif
}

void AddAllocation(const void* begin, size_t bytes) { TheWatch().Add(begin, bytes); }
size_t RemoveAllocation(const void* begin) { return TheWatch().Remove(begin); }

void MarkUnwritten(void* begin, size_t bytes) {
  auto* at = static_cast<uint8_t*>(begin);
  const auto address = reinterpret_cast<uintptr_t>(begin);
  for (size_t i = 0; i < bytes; ++i) at[i] = kUnwrittenBytes[(address + i) % kWordBytes];
}

bool HoldsUnwritten(const void* begin, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(begin);
  for (uintptr_t at = address / kWordBytes * kWordBytes; at < address + bytes; at += kWordBytes) {
    uint32_t word = 0;
    std::memcpy(&word, reinterpret_cast<const void*>(at), kWordBytes);
    if (word == kUnwrittenWord) return true;
  }
  return false;
}

void WatchLaunch(const void* parameters, size_t bytes) { TheWatch().Launch(parameters, bytes); }
void WatchBlock() { TheWatch().Block(); }
void WatchThread(const Moment* now, const void* stack, size_t bytes) {
  TheWatch().Thread(now, stack, bytes);
}

void OnMisaligned(const void* address) {
  Fail("%p is not aligned for the type that is read or written there", address);
}

void OnAccess(const void* address, size_t bytes, Access access) {
  Watch& watch = TheWatch();
  if (watch.watching()) watch.Access(reinterpret_cast<uintptr_t>(address), bytes, access);
}

}  // namespace snug::cuda_on_cpu
