// The bias of a linear module: laid into every row before the product is added, so that the sum is
// rounded once; and its gradient, the sum over the rows.
//
//   forward: y[i] = b        backward: db (+)= sum_i dy[i]
#ifndef KERNELS_BIAS_H_
#define KERNELS_BIAS_H_

#include <cstdint>

#include "kernels/column_sums.h"
#include "kernels/types.h"

namespace snug::kernels {

// Traffic: N*C elements.
struct BiasForwardParams {
  const void* b = nullptr;  // (C), dtype
  void* y = nullptr;        // (N, C), dtype
  int64_t N = 0, C = 0;
  int64_t y_stride = 0;
  DType dtype = DType::kF32;
};
Error BiasForward(const BiasForwardParams& p, Stream stream);

// A column is summed over rows in blocks of 32 in fp32, the blocks in fp64, so dividing rows among
// calls changes its last bits. Traffic: N*C elements + 4*C bytes.
struct BiasBackwardParams {
  const void* dy = nullptr;  // (N, C), dtype
  float* db = nullptr;       // (C), fp32
  int64_t N = 0, C = 0;
  int64_t dy_stride = 0;
  DType dtype = DType::kF32;
  bool accumulate = false;    // Without it and with N == 0, db becomes 0.
  void* workspace = nullptr;  // On CUDA: ColumnSumsWorkspace(N, C) bytes
};
Error BiasBackward(const BiasBackwardParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_BIAS_H_
