#include "kernels/cpu/loops/cached_bytes.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <string>

namespace snug::kernels {
namespace {

constexpr int64_t kCommonBytes = 32 << 20;  // Where the system does not tell.
constexpr int kMostCaches = 8;              // Of a core; machines have three or four.

// As Linux tells it: sysconf's answer is that of all cores' caches on some virtual machines.
int64_t LastCacheBytes() {
  int64_t largest_kib = 0;
  for (int cache = 0; cache < kMostCaches; ++cache) {
    std::ifstream size("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(cache) +
                       "/size");
    int64_t kib;
    if (size >> kib) largest_kib = std::max(largest_kib, kib);
  }
  return largest_kib > 0 ? largest_kib << 10 : kCommonBytes;
}

std::atomic<int64_t>& Chosen() {
  static std::atomic<int64_t> chosen{LastCacheBytes()};
  return chosen;
}

}  // namespace

int64_t CachedBytes() { return Chosen().load(std::memory_order_relaxed); }

void UseCachedBytes(int64_t bytes) { Chosen().store(bytes, std::memory_order_relaxed); }

}  // namespace snug::kernels
