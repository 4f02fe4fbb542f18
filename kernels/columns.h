// Columns of a matrix by id, as rows, and the sum back into them: the A (R, V) of an embedding's
// adapter, which PEFT lays out by rank.
//
//   gather: y[i, r] = x[r, ids[i]]        add: x[r, ids[i]] += y[i, r], for i in order
#ifndef KERNELS_COLUMNS_H_
#define KERNELS_COLUMNS_H_

#include <cstdint>

#include "kernels/types.h"

namespace snug::kernels {

// Traffic: 8*N*R bytes, each read of x from a cache line of its own. Adding, each element of x
// takes its terms in the order of the rows: the same bits on CPU and CUDA, for any threads; 12*N*R
// bytes, on CUDA N*N comparisons of ids out of the cache as well.
struct ColumnsParams {
  float* x = nullptr;            // (R, V), fp32; only read when gathering
  const int32_t* ids = nullptr;  // (N), in [0, V)
  float* y = nullptr;            // (N, R), fp32; only read when adding
  int64_t N = 0, R = 0, V = 0;
  int64_t x_stride = 0, y_stride = 0;
};
Error GatherColumns(const ColumnsParams& p, Stream stream);
Error AddColumns(const ColumnsParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_COLUMNS_H_
