// Moving rows: gather, scatter, cast, add.
#ifndef KERNELS_ROWS_H_
#define KERNELS_ROWS_H_

#include <cstdint>

#include "kernels/types.h"

namespace snug::kernels {

// y[i] = x[index[i]] for i in [0, N). With a period P, which divides N, the index is that of each P
// rows among themselves: y[i] = x[i - i mod P + index[i mod P]]. Traffic: 2*N*C elements.
struct GatherRowsParams {
  const void* x = nullptr;      // (x_rows, C), dtype
  const void* index = nullptr;  // (N), index_type, in [0, x_rows); or (P), in [0, P)
  void* y = nullptr;            // (N, C), dtype
  int64_t N = 0, C = 0, x_rows = 0;
  int64_t period = 0;  // 0: none; else x has as many rows as y.
  int64_t x_stride = 0, y_stride = 0;
  DType dtype = DType::kF32;
  IndexType index_type = IndexType::kI32;
};
Error GatherRows(const GatherRowsParams& p, Stream stream);

// y[index[i]] = x[i], or += with `accumulate`. Indices rise strictly, so no two rows meet. With
// `zero_others` the rows of y that no index names become 0; then x may be null, and those that one
// names stay as they are. Traffic: 2*N*C elements (3 accumulating).
struct ScatterRowsParams {
  const void* x = nullptr;      // (N, C), dtype; or null, with zero_others
  const void* index = nullptr;  // (N), index_type, in [0, y_rows), strictly rising
  void* y = nullptr;            // (y_rows, C), dtype
  int64_t N = 0, C = 0, y_rows = 0;
  int64_t x_stride = 0, y_stride = 0;
  DType dtype = DType::kF32;
  IndexType index_type = IndexType::kI32;
  bool accumulate = false;
  bool zero_others = false;  // Not with accumulate. Applies with N == 0 as well.
};
Error ScatterRows(const ScatterRowsParams& p, Stream stream);

// y = x, converted where the types differ: a copy, or a cast. `y` may be `x` only if they are of
// one type. Traffic: N*C elements of each.
struct CastRowsParams {
  const void* x = nullptr;  // (N, C), x_dtype
  void* y = nullptr;        // (N, C), y_dtype
  int64_t N = 0, C = 0;
  int64_t x_stride = 0, y_stride = 0;
  DType x_dtype = DType::kF32, y_dtype = DType::kF32;
};
Error CastRows(const CastRowsParams& p, Stream stream);

// y = a + scale * b, computed in fp32. `y` may be `a` or `b`, if it is of the same type. Traffic:
// N*C elements of each.
struct AddRowsParams {
  const void* a = nullptr;  // (N, C), a_dtype
  const void* b = nullptr;  // (N, C), b_dtype
  void* y = nullptr;        // (N, C), y_dtype
  int64_t N = 0, C = 0;
  int64_t a_stride = 0, b_stride = 0, y_stride = 0;
  DType a_dtype = DType::kF32, b_dtype = DType::kF32, y_dtype = DType::kF32;
  float scale = 1.0f;  // Of b; 1 leaves b as it is.
};
Error AddRows(const AddRowsParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_ROWS_H_
