// The mean of rows that follow one another, such as an image's patches: what a head that pools
// reads.
//
//   forward: y[i] = mean_j x[i G + j], j in [0, G)        backward: dx[i G + j] (+)= dy[i] / G
#ifndef KERNELS_MEAN_ROWS_H_
#define KERNELS_MEAN_ROWS_H_

#include <cstdint>

#include "kernels/types.h"

namespace snug::kernels {

// Sums are fp32, of 32 rows at a time, which are added up then. Traffic: N*(G + 1)*C elements.
struct MeanRowsForwardParams {
  const void* x = nullptr;  // (N*G, C), dtype
  void* y = nullptr;        // (N, C), dtype
  int64_t N = 0, G = 0, C = 0;
  int64_t x_stride = 0, y_stride = 0;
  DType dtype = DType::kF32;
};
Error MeanRowsForward(const MeanRowsForwardParams& p, Stream stream);

// Traffic: N*(G + 1)*C elements, 2*G + 1 accumulating.
struct MeanRowsBackwardParams {
  const void* dy = nullptr;  // (N, C), dtype
  void* dx = nullptr;        // (N*G, C), dtype
  int64_t N = 0, G = 0, C = 0;
  int64_t dy_stride = 0, dx_stride = 0;
  DType dtype = DType::kF32;
  bool accumulate = false;
};
Error MeanRowsBackward(const MeanRowsBackwardParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_MEAN_ROWS_H_
