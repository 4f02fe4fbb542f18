// Matrix products into memory that is already there.
#ifndef WORKER_EXECUTE_OPS_PRODUCTS_H_
#define WORKER_EXECUTE_OPS_PRODUCTS_H_

#include <algorithm>
#include <initializer_list>

#include "worker/execute/gemm.h"
#include "worker/execute/ops/cast.h"

namespace snug::execute {

// scale * a b, both of one number type.
struct Term {
  Matrix a, b;
  double scale = 1.0;
};

// to (+)= the term; `to` is fp32, or bf16 where the device rounds sums
// itself (Device::rounds_products).
inline void SumProduct(const OpRun& run, const Matrix& to, const Term& term, bool add) {
  const auto& [a, b, scale] = term;
  run.device->Multiply({.a = a.data,
                        .b = b.data,
                        .c = to.data,
                        .m = a.rows,
                        .n = b.columns,
                        .k = a.columns,
                        .a_stride = a.stride,
                        .b_stride = b.stride,
                        .c_stride = to.stride,
                        .a_transposed = a.transposed,
                        .b_transposed = b.transposed,
                        .dtype = a.dtype,
                        .c_dtype = to.dtype,
                        .alpha = static_cast<float>(scale),
                        .add = add},
                       run.stream_number);
}

// Rows [row, row + rows) and columns [column, column + columns) of a result.
struct Part {
  int64_t row, column, rows, columns;

  Matrix Of(const Matrix& matrix) const { return matrix.Rows(row, rows).Columns(column, columns); }
};

// Calls body(part, sums) for each part of a result that is computed in fp32 before it takes its own
// type; `sums` is workspace of the part's size.
template <typename Body>
void ForEachPart(const OpRun& run, int64_t rows, int64_t columns, const Body& body) {
  const program::Machine machine = run.device->machine();
  const int64_t height = std::min(program::PartRows(machine), rows);
  const int64_t width = std::min(program::PartColumns(machine), columns);
  const Scratch buffer(run, height, width, program::DType::kF32);
  for (int64_t i = 0; i < rows; i += height) {
    for (int64_t j = 0; j < columns; j += width) {
      const Part part{i, j, std::min(height, rows - i), std::min(width, columns - j)};
      body(part, View{buffer.data(), part.rows, part.columns, program::DType::kF32});
    }
  }
}

// to (+)= the sum of the terms, rounded once.
inline void SumOfProducts(const OpRun& run, const View& to, std::initializer_list<Term> terms,
                          bool add) {
  const auto sum = [&](const Matrix& sums, const Part& part) {
    for (const Term& term : terms) {
      SumProduct(
          run, sums,
          {term.a.Rows(part.row, part.rows), term.b.Columns(part.column, part.columns), term.scale},
          add || &term != terms.begin());
    }
  };
  const bool rounds = run.device->rounds_products() && terms.size() == 1;
  if (to.dtype == program::DType::kF32 || rounds) return sum(to, {0, 0, to.rows, to.width});
  ForEachPart(run, to.rows, to.width, [&](const Part& part, const View& sums) {
    if (add) Cast(run, part.Of(to), sums);
    sum(sums, part);
    Cast(run, sums, part.Of(to));
  });
}

// to (+)= the term, rounded once.
inline void Product(const OpRun& run, const View& to, const Term& term, bool add) {
  SumOfProducts(run, to, {term}, add);
}

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_OPS_PRODUCTS_H_
