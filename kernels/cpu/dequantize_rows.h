// A whole frozen weight to its dtype, rows among threads: the end of DequantizeNf4 and of
// DequantizeInt8Weight.
#ifndef KERNELS_CPU_DEQUANTIZE_ROWS_H_
#define KERNELS_CPU_DEQUANTIZE_ROWS_H_

#include <cstdint>

#include "kernels/cpu/loops/frozen_tile.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {

SNUG_VERSIONS(DequantizeTile, void(const FrozenTile&));

namespace cpu {

// Params: of either op, with w (N, K), w_stride and dtype.
template <typename Params>
void DequantizeRows(const Params& p, const FrozenWeight& W) {
  const int64_t row_bytes = p.w_stride * SizeOf(p.dtype);
  ParallelFor(p.N, p.N * p.K * (SizeOf(p.dtype) + 1), [&](Range rows) {
    DequantizeTile(FrozenTile{.W = W,
                              .K = p.K,
                              .rows = rows,
                              .columns = {0, p.K},
                              .to = static_cast<char*>(p.w) + rows.begin * row_bytes,
                              .stride = p.w_stride,
                              .dtype = p.dtype});
  });
}

}  // namespace cpu
}  // namespace snug::kernels

#endif  // KERNELS_CPU_DEQUANTIZE_ROWS_H_
