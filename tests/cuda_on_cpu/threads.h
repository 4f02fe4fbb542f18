// Emulated CUDA: barriers, warp operations and atomics.
#ifndef TESTS_CUDA_ON_CPU_THREADS_H_
#define TESTS_CUDA_ON_CPU_THREADS_H_

#include <cstdint>
#include <cstring>

#include "tests/cuda_on_cpu/emulator.h"
#include "tests/cuda_on_cpu/language.h"
#include "tests/cuda_on_cpu/memory_watch.h"

// The line is the caller's: default arguments are evaluated there. What an intrinsic does itself is
// not watched.
#define SNUG_UNWATCHED __attribute__((no_sanitize("thread")))
inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  snug::cuda_on_cpu::BlockBarrier(false, {file, line});
}
inline int __syncthreads_count(int vote, const char* file = __builtin_FILE(),
                               int line = __builtin_LINE()) {
  return snug::cuda_on_cpu::BlockBarrier(vote != 0, {file, line});
}
inline int __syncthreads_or(int vote, const char* file = __builtin_FILE(),
                            int line = __builtin_LINE()) {
  return snug::cuda_on_cpu::BlockBarrier(vote != 0, {file, line}) > 0;
}
inline void __syncwarp(unsigned mask = ~0u, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
  snug::cuda_on_cpu::WarpExchange(snug::cuda_on_cpu::kWarpBarrier, mask, 0, {file, line});
}

struct SnugWarpCall {
  const char* kind;
  unsigned mask;
  snug::cuda_on_cpu::Site site;
};

// The value of lane `from`, or one's own where that is outside of the group of `width` lanes.
template <typename T>
SNUG_UNWATCHED inline T SnugShuffle(const SnugWarpCall& call, T value, int from, int width) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t mine = 0;
  std::memcpy(&mine, &value, sizeof(value));
  const uint64_t* all = snug::cuda_on_cpu::WarpExchange(call.kind, call.mask, mine, call.site);
  const int lane = snug::cuda_on_cpu::Lane(), group = lane / width * width;
  if (from < group || from >= group + width) return value;
  if ((call.mask >> from & 1) == 0)
    snug::cuda_on_cpu::Fail("%s:%d: %s: lane %d reads lane %d, which the mask leaves out",
                            call.site.file, call.site.line, call.kind, lane, from);
  std::memcpy(&value, &all[from], sizeof(value));
  return value;
}
#define SNUG_SHUFFLE(name, argument, source)                                        \
  template <typename T>                                                             \
  inline T name(unsigned mask, T value, argument, int width = warpSize,             \
                const char* file = __builtin_FILE(), int line = __builtin_LINE()) { \
    const int lane = snug::cuda_on_cpu::Lane();                                     \
    return SnugShuffle({#name, mask, {file, line}}, value, source, width);          \
  }
SNUG_SHUFFLE(__shfl_sync, int from, lane / width * width + from % width)
SNUG_SHUFFLE(__shfl_xor_sync, int bits, lane ^ bits)
SNUG_SHUFFLE(__shfl_down_sync, unsigned by, lane + static_cast<int>(by))
SNUG_SHUFFLE(__shfl_up_sync, unsigned by, lane - static_cast<int>(by))
#undef SNUG_SHUFFLE

SNUG_UNWATCHED inline unsigned SnugBallot(const char* kind, unsigned mask, bool vote,
                                          const char* file, int line) {
  const uint64_t* all = snug::cuda_on_cpu::WarpExchange(kind, mask, vote, {file, line});
  unsigned votes = 0;
  for (int lane = 0; lane < warpSize; ++lane) votes |= all[lane] != 0 ? 1u << lane : 0;
  return votes;
}
#define SNUG_VOTE(name, type, result)                                            \
  inline type name(unsigned mask, int vote, const char* file = __builtin_FILE(), \
                   int line = __builtin_LINE()) {                                \
    const unsigned votes = SnugBallot(#name, mask, vote != 0, file, line);       \
    return result;                                                               \
  }
SNUG_VOTE(__ballot_sync, unsigned, votes)
SNUG_VOTE(__any_sync, int, votes != 0)
SNUG_VOTE(__all_sync, int, (votes & mask) == mask)
#undef SNUG_VOTE

// One thread runs at a time, so plain code is atomic; the watch is told that it is meant to be.
template <typename T, typename Operation>
SNUG_UNWATCHED inline T SnugAtomic(T* p, Operation operation) {
  snug::cuda_on_cpu::OnAccess(p, sizeof(T), snug::cuda_on_cpu::Access::kAtomic);
  T before, after;
  std::memcpy(&before, p, sizeof(T));
  after = operation(before);
  std::memcpy(p, &after, sizeof(T));
  return before;
}
template <typename T>
inline T atomicAdd(T* p, T value) {
  return SnugAtomic(p, [=](T old) { return static_cast<T>(old + value); });
}
template <typename T>
inline T atomicMax(T* p, T value) {
  return SnugAtomic(p, [=](T old) { return old < value ? value : old; });
}
template <typename T>
inline T atomicMin(T* p, T value) {
  return SnugAtomic(p, [=](T old) { return value < old ? value : old; });
}
template <typename T>
inline T atomicOr(T* p, T value) {
  return SnugAtomic(p, [=](T old) { return static_cast<T>(old | value); });
}
template <typename T>
inline T atomicExch(T* p, T value) {
  return SnugAtomic(p, [=](T) { return value; });
}
template <typename T>
inline T atomicCAS(T* p, T expected, T value) {
  return SnugAtomic(p, [=](T old) { return old == expected ? value : old; });
}
inline void __threadfence() {}

#endif  // TESTS_CUDA_ON_CPU_THREADS_H_
