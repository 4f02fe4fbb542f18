// Each runs one kernel of bad_kernels.cu; whether the launch went well.
#ifndef TESTS_CUDA_ON_CPU_BAD_KERNELS_H_
#define TESTS_CUDA_ON_CPU_BAD_KERNELS_H_

#include <cstdint>

namespace snug::cuda_on_cpu {

bool RunTreeSum(const float* x, float* sums, int blocks, bool barrier);  // 64 elements a block.
bool RunDouble(float* x, int64_t n, int threads);
bool RunWarpSum(float* x, int lanes);      // Those from `lanes` on leave before the shuffle.
bool RunTwoBranches(float* x, int lanes);  // They and the others stand in different shuffles.
bool RunCountReaders(float* x, int threads, bool shuffle);  // Lane 0 writes what all have read.
bool RunEarlyExit(float* x, int threads);  // Those from `threads` on leave before the barrier.
bool RunReadUnwritten(float* x, int written);
bool RunSameElement(float* x, bool atomic);
bool RunWideRead(const float* x, float* y, int offset);  // 16 bytes at x + offset.

}  // namespace snug::cuda_on_cpu

#endif  // TESTS_CUDA_ON_CPU_BAD_KERNELS_H_
