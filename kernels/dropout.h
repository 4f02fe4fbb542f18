// Dropout (Srivastava et al. 2014, inverted form). The mask is a function of the site, the row and
// the column: it is never stored, and forward, recompute and backward call the same op.
//
//   y[i,c] (+)= x[i,c] * keep(i,c) / (1 - rate)      keep(i,c): random word / 2 >= rate * 2^31
//
// Column c of row i takes word (c % 64) / 16 of Philox block i * ceil(C / 64) * 16 + (c / 64) * 16
// + c % 16: 64 neighbours are the four words of 16 blocks, which vectors and warps compute side by
// side. With `rows_per_draw` so many rows are kept or dropped together, by what column 0 of row i /
// rows_per_draw draws: stochastic depth (Huang et al. 2016), where they are an image's. Where
// backward must not draw again, the mask can be written; CodeBackward (codes.h) reads it, with
// slopes 0 and 1 / (1 - rate).
#ifndef KERNELS_DROPOUT_H_
#define KERNELS_DROPOUT_H_

#include <cstdint>

#include "kernels/philox.h"
#include "kernels/types.h"

namespace snug::kernels {

// `y` may be `x` (not with accumulate). Backward: x = dy, y = dx. Traffic: 2*N*C elements (3 with
// accumulate) + N*C/8 bytes of mask.
struct DropoutParams {
  const void* x = nullptr;  // (N, C), dtype
  void* y = nullptr;        // (N, C), dtype
  int64_t N = 0, C = 0;
  int64_t x_stride = 0, y_stride = 0;
  int64_t first_row = 0;               // Of the micro-batch: where this call's rows begin in it.
  const int32_t* row_index = nullptr;  // (N), or null: which of its rows they are, counted from it.
  int64_t rows_per_draw = 0;           // 0: each element is drawn; else without row_index.
  DType dtype = DType::kF32;
  bool accumulate = false;
  double rate = 0.0;  // [0, 1): the probability that an element is dropped.
  RandomSite site;
  uint8_t* mask = nullptr;  // (N, ceil(C / 8)), layout of codes.h, or null: 1 where kept
  int64_t mask_stride = 0;
};
Error Dropout(const DropoutParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_DROPOUT_H_
