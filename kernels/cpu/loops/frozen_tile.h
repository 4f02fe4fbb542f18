// What ops on frozen weights ask of the inner loops: tiles of W'. Plain data; knows no instruction
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

// The right operand of a product, of these columns and terms: forward, columns are rows of W' and
// terms its columns; backward, the other way round. Words (tiles.h) lie in panels:
//   to[c / kPanel * (panel) + k * kPanel + c % kPanel]: word k of column c - columns.begin,
// zero for columns up to the next multiple of 16. Of a pair what is subnormal may be 0: products of
// pairs take it for that.
struct FrozenPanels {
  FrozenWeight W;
  int64_t K = 0;
  bool forward = false;
  Range columns, terms;
  DType dtype = DType::kF32;
  bool pairs = false;
  float* to = nullptr;
};

}  // namespace snug::kernels

#endif  // KERNELS_CPU_LOOPS_FROZEN_TILE_H_
