// Each runs one kernel of bad_kernels.cu; whether the launch went well.
#ifndef TESTS_CUDA_ON_CPU_BAD_KERNELS_H_
#define TESTS_CUDA_ON_CPU_BAD_KERNELS_H_

#include <cstdint>

namespace snug::cuda_on_cpu {

bool RunTreeSum(const float* x, float* sums, int blocks, bool barrier);  // 64 elements a block.
bool RunDouble(float* x, int64_t n, int threads);
bool RunWarpSum(float* x, int lanes);      // Those from `lanes` on leave before the shuffle.
bool RunTwoBranches(float* x, int lanes);  // They and the others stand in different shuffles.
// What stands between the accesses of a warp's lanes, besides shuffles: nothing, a vote, a barrier
// of half of them, a barrier of all.
enum class WarpFence : uint8_t { kNone, kVote, kHalf, kWarp };
bool RunCountReaders(float* x, int threads, WarpFence fence);  // Lane 0 writes what all have read.
bool RunNeighbours(float* x, WarpFence fence);  // In shared memory: reads what another has written.
bool RunBounded(float* x, int threads);         // Launch bounds of 96,
bool RunBoundedByWarps(float* x, int threads);  // of 64, which are a template's,
bool RunUnbounded(float* x, int threads);       // of none.
bool RunCopy(const float* x, float* y, int n);
bool RunEarlyExit(float* x, int threads);  // Those from `threads` on leave before the barrier.
bool RunReadUnwritten(float* x, int written);
bool RunSameElement(float* x, bool atomic);
bool RunWideRead(const float* x, float* y, int offset);  // 16 bytes at x + offset.

}  // namespace snug::cuda_on_cpu

#endif  // TESTS_CUDA_ON_CPU_BAD_KERNELS_H_
