// What op and loops have in common: the part of the work that a loop is given.
#ifndef KERNELS_CPU_LOOPS_RANGE_H_
#define KERNELS_CPU_LOOPS_RANGE_H_

#include <cstdint>

namespace snug::kernels {

// Half open.
struct Range {
  int64_t begin = 0, end = 0;
};

}  // namespace snug::kernels

#endif  // KERNELS_CPU_LOOPS_RANGE_H_
