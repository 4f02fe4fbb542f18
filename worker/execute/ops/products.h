// Matrix products into memory that is already there, and the pieces of rows that need another
// number type first.
#ifndef WORKER_EXECUTE_OPS_PRODUCTS_H_
#define WORKER_EXECUTE_OPS_PRODUCTS_H_

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/rows.h"
#include "worker/execute/gemm.h"
#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/tensor_view.h"
#include "worker/program/workspace.h"

namespace snug::execute {

// One operand of a product as its memory lies: rows, or the columns of a transposed view.
struct Operand {
  const void* data;
  int64_t stride;
  bool transposed;

  explicit Operand(const at::Tensor& matrix)
      : data(matrix.const_data_ptr()),
        stride(std::max(matrix.stride(0), matrix.stride(1))),
        transposed(matrix.stride(1) != 1) {
    // Of a single row or column the strides say nothing.
    stride = std::max(stride, matrix.size(transposed ? 0 : 1));
  }
};

// to (+)= scale * a b, both of one number type; `to` is fp32 and may be a slice of columns.
inline void SumProduct(const at::Tensor& to, const at::Tensor& a, const at::Tensor& b, bool add,
                       double scale = 1.0) {
  const Operand left(a), right(b);
  const bool fp32 = a.scalar_type() == at::kFloat;
  Gemm({.a = left.data,
        .b = right.data,
        .c = to.data_ptr<float>(),
        .m = a.size(0),
        .n = b.size(1),
        .k = a.size(1),
        .a_stride = left.stride,
        .b_stride = right.stride,
        .c_stride = std::max(to.stride(0), to.size(1)),
        .a_transposed = left.transposed,
        .b_transposed = right.transposed,
        .dtype = fp32 ? program::DType::kF32 : program::DType::kBF16,
        .alpha = static_cast<float>(scale),
        .add = add});
}

inline void Cast(const View& from, const View& to) {
  Check("CastRows", kernels::CastRows({.x = from.data,
                                       .y = to.data,
                                       .N = to.rows,
                                       .C = to.width,
                                       .x_stride = to.width,
                                       .y_stride = to.width,
                                       .x_dtype = KernelType(from),
                                       .y_dtype = KernelType(to)},
                                      nullptr));
}

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

// Rows [row, row + rows) and columns [column, column + columns) of a result.
struct Part {
  int64_t row, column, rows, columns;

  at::Tensor Of(const at::Tensor& matrix) const {
    return matrix.narrow(0, row, rows).narrow(1, column, columns);
  }
};

// Calls body(part, sums) for each part of a result that is computed in fp32 before it takes its own
// type; `sums` is workspace of the part's size.
template <typename Body>
void ForEachPart(int64_t rows, int64_t columns, const Body& body) {
  const int64_t height = std::min(program::kPartRows, rows);
  const int64_t width = std::min(program::kPartColumns, columns);
  const at::Tensor buffer = Scratch({height * width}, program::DType::kF32);
  for (int64_t i = 0; i < rows; i += height) {
    for (int64_t j = 0; j < columns; j += width) {
      const Part part{i, j, std::min(height, rows - i), std::min(width, columns - j)};
      body(part, View{buffer.data_ptr(), part.rows, part.columns, program::DType::kF32});
    }
  }
}

// A part of a matrix to where another lies.
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

// to (+)= scale * a b, rounded once.
inline void Product(const View& to, const at::Tensor& a, const at::Tensor& b, bool add,
                    double scale = 1.0) {
  const at::Tensor result = Matrix(to);
  if (to.dtype == program::DType::kF32) return SumProduct(result, a, b, add, scale);
  ForEachPart(to.rows, to.width, [&](const Part& part, const View& sums) {
    if (add) CastPart(part.Of(result), Matrix(sums));
    SumProduct(Matrix(sums), a.narrow(0, part.row, part.rows),
               b.narrow(1, part.column, part.columns), add, scale);
    CastPart(Matrix(sums), part.Of(result));
  });
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

#endif  // WORKER_EXECUTE_OPS_PRODUCTS_H_
