// Watches what a kernel's threads read and write. The compiler calls __tsan_read4 and the like
// before each access of a file compiled with -fsanitize=thread; hooks.cc answers these calls in the
// place of ThreadSanitizer's library.
//
// Reported are
// - an access outside of allocations, the launch's parameters, the thread's own stack and the
//   program's static data (shared memory is static data here),
// - an access through a pointer that is not aligned for its type (-fsanitize=alignment),
// - a race: two threads access a byte, one of them writes, and nothing orders them. Threads of a
//   block are ordered by barriers, lanes of a warp by __syncwarp of all of them too (a shuffle or a
//   vote is no fence), blocks by nothing. Atomic operations do not race with one another.
// - a read of shared memory that nothing in the block has written,
// - a read of global memory that still holds what cudaMalloc left there: neither a kernel nor the
//   host has written it. Seen by four bytes, so one element of a pair may hide behind the other.
#ifndef TESTS_CUDA_ON_CPU_MEMORY_WATCH_H_
#define TESTS_CUDA_ON_CPU_MEMORY_WATCH_H_

#include <cstddef>
#include <cstdint>

namespace snug::cuda_on_cpu {

// Who accesses, and when: what decides whether two accesses are ordered.
struct Moment {
  uint32_t block = 0;        // Number in its grid.
  uint32_t thread = 0;       // Number in its block.
  uint32_t block_phase = 0;  // Barriers that the block has passed.
  uint32_t warp_phase = 0;   // Barriers of the block or of the whole warp that it has passed.
};

enum class Access : uint8_t { kRead, kWrite, kAtomic };

// Whether accesses come here. Under AddressSanitizer they do not: it ends the process at its first
// finding instead.
bool Watching();

// Memory that kernels may use: what cudaMalloc gives. Freed memory is unknown again; how many bytes
// that were, 0 if there is no such allocation.
void AddAllocation(const void* begin, size_t bytes);
size_t RemoveAllocation(const void* begin);

// Fills memory with what tells that nobody has written it: NaN in every number type, and nothing
// that a test writes. The address decides which byte it gets.
void MarkUnwritten(void* begin, size_t bytes);
// Whether some of these bytes are still as MarkUnwritten left them: four at a time, aligned.
bool HoldsUnwritten(const void* begin, size_t bytes);

// A launch begins: nothing has been accessed yet.
void WatchLaunch(const void* parameters, size_t parameter_bytes);
// A block begins: its shared memory holds nothing.
void WatchBlock();
// The thread that runs now, and its stack. nullptr: none runs, and accesses are the host's.
void WatchThread(const Moment* now, const void* stack, size_t stack_bytes);

// A pointer that is not aligned for the type it is used as.
void OnMisaligned(const void* address);
// Checks one access of the running thread; Fail()s when it is wrong.
void OnAccess(const void* address, size_t bytes, Access access);

}  // namespace snug::cuda_on_cpu

#endif  // TESTS_CUDA_ON_CPU_MEMORY_WATCH_H_
