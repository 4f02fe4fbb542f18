// What ops on frozen weights ask of the inner loops: a tile of W'. Plain data; knows no instruction
// set.
#ifndef KERNELS_CPU_LOOPS_FROZEN_TILE_H_
#define KERNELS_CPU_LOOPS_FROZEN_TILE_H_

#include <cstdint>

#include "kernels/cpu/loops/range.h"
#include "kernels/frozen_linear.h"
#include "kernels/types.h"

namespace snug::kernels {

// to[(n - rows.begin) * stride + k - columns.begin] = W'[n, k], rounded to dtype.
struct FrozenTile {
  FrozenWeight W;
  int64_t K = 0;
  Range rows, columns;
  void* to = nullptr;
  int64_t stride = 0;
  DType dtype = DType::kF32;
};

}  // namespace snug::kernels

#endif  // KERNELS_CPU_LOOPS_FROZEN_TILE_H_
