// Matrix products into memory that is already there.
#ifndef WORKER_EXECUTE_OPS_PRODUCTS_H_
#define WORKER_EXECUTE_OPS_PRODUCTS_H_

#include <ATen/ATen.h>

#include <algorithm>
#include <initializer_list>

#include "worker/execute/gemm.h"
#include "worker/execute/ops/cast.h"
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

// scale * a b
struct Term {
  at::Tensor a, b;
  double scale = 1.0;
};

// to (+)= the sum of the terms, rounded once.
inline void SumOfProducts(const View& to, std::initializer_list<Term> terms, bool add) {
  const auto sum = [&](const at::Tensor& sums, const Part& part) {
    for (const Term& term : terms) {
      SumProduct(sums, term.a.narrow(0, part.row, part.rows),
                 term.b.narrow(1, part.column, part.columns), add || &term != terms.begin(),
                 term.scale);
    }
  };
  const at::Tensor result = Matrix(to);
  if (to.dtype == program::DType::kF32) return sum(result, {0, 0, to.rows, to.width});
  ForEachPart(to.rows, to.width, [&](const Part& part, const View& sums) {
    if (add) CastPart(part.Of(result), Matrix(sums));
    sum(Matrix(sums), part);
    CastPart(Matrix(sums), part.Of(result));
  });
}

// to (+)= scale * a b, rounded once.
inline void Product(const View& to, const at::Tensor& a, const at::Tensor& b, bool add,
                    double scale = 1.0) {
  SumOfProducts(to, {{a, b, scale}}, add);
}

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_OPS_PRODUCTS_H_
