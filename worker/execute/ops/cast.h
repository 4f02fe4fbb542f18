// Rows that need another number type, whole or piece by piece.
#ifndef WORKER_EXECUTE_OPS_CAST_H_
#define WORKER_EXECUTE_OPS_CAST_H_

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/rows.h"
#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/tensor_view.h"
#include "worker/program/workspace.h"

namespace snug::execute {

// A matrix, which may be a part of a wider one, to where another lies.
inline void CastPart(const at::Tensor& from, const at::Tensor& to) {
  const auto type = [](const at::Tensor& matrix) {
    return matrix.scalar_type() == at::kFloat ? kernels::DType::kF32 : kernels::DType::kBF16;
  };
  Check("CastRows", kernels::CastRows({.x = from.const_data_ptr(),
                                       .y = to.data_ptr(),
                                       .N = to.size(0),
                                       .C = to.size(1),
                                       .x_stride = from.stride(0),
                                       .y_stride = to.stride(0),
                                       .x_dtype = type(from),
                                       .y_dtype = type(to)},
                                      nullptr));
}

inline void Cast(const View& from, const View& to) { CastPart(Matrix(from), Matrix(to)); }

// to += from, rounded once.
inline void AddInto(const View& from, const View& to) {
  Check("AddRows", kernels::AddRows({.a = to.data,
                                     .b = from.data,
                                     .y = to.data,
                                     .N = to.rows,
                                     .C = to.width,
                                     .a_stride = to.width,
                                     .b_stride = to.width,
                                     .y_stride = to.width,
                                     .a_dtype = KernelType(to),
                                     .b_dtype = KernelType(from),
                                     .y_dtype = KernelType(to)},
                                    nullptr));
}

// Calls body(first, piece) for each piece of `rows` rows; `piece` is fp32 workspace of that many
// rows.
template <typename Body>
void ForEachPiece(int64_t rows, int64_t width, const Body& body) {
  const int64_t most = std::min(program::kConvertRows, rows);
  at::Tensor buffer = Scratch({most, width}, program::DType::kF32);
  for (int64_t first = 0; first < rows; first += most) {
    body(first, View{buffer.data_ptr(), std::min(most, rows - first), width, program::DType::kF32});
  }
}

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_OPS_CAST_H_
