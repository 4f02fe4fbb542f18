// What __launch_bounds__ says of a kernel: the most threads that a block of it may have. A GPU
// refuses a launch of more, since the registers were given out for that many.
#ifndef TESTS_CUDA_ON_CPU_LAUNCH_BOUNDS_H_
#define TESTS_CUDA_ON_CPU_LAUNCH_BOUNDS_H_

#include <cstdint>

namespace snug::cuda_on_cpu {

inline constexpr uint64_t kMaxThreads = 1024;  // Of a block on every GPU.

// Of a kernel without bounds kMaxThreads.
uint64_t MostThreadsOf(const void* kernel);

}  // namespace snug::cuda_on_cpu

#endif  // TESTS_CUDA_ON_CPU_LAUNCH_BOUNDS_H_
