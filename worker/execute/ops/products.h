// Matrix products into memory that is already there, and the pieces of rows that need another
// number type first.
#ifndef WORKER_EXECUTE_OPS_PRODUCTS_H_
#define WORKER_EXECUTE_OPS_PRODUCTS_H_

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/rows.h"
#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/tensor_view.h"
#include "worker/program/workspace.h"

// Of MKL, which the wheel's LibTorch has inside and exports without a header. Its buffers are its
// own. Arguments: (layout, transpose a, transpose b, m, n, k, alpha, a, lda, b, ldb, beta, c,
// ldc)
using Bf16Gemm = void(int, int, int, int, int, int, float, const void*, int, const void*, int,
                      float, float*, int);
extern "C" Bf16Gemm cblas_gemm_bf16bf16f32;

namespace snug::execute {

// to (+)= scale * a b, in one call of the library.
inline void WholeProduct(const View& to, const at::Tensor& a, const at::Tensor& b, bool add,
                         double scale = 1.0) {
  at::Tensor result = Matrix(to);
  if (!add && scale == 1.0) {
    at::mm_out(result, a, b);
    return;
  }
  at::addmm_out(result, result, a, b, /*beta=*/add ? 1.0 : 0.0, /*alpha=*/scale);
}

// Which operand of CBLAS a matrix is: as it lies, or the transpose of what lies there.
struct BlasOperand {
  static constexpr int kRowMajor = 101, kNoTranspose = 111, kTranspose = 112;
  int transpose;
  int stride;
};

inline BlasOperand OperandOf(const at::Tensor& m) {
  if (m.stride(1) == 1) {  // A single row's stride may be anything.
    return {BlasOperand::kNoTranspose, static_cast<int>(std::max(m.stride(0), m.size(1)))};
  }
  return {BlasOperand::kTranspose, static_cast<int>(m.stride(1))};
}

// to (+)= scale * a b of bf16 operands, summed and kept in fp32: at::mm has that on a GPU only.
inline void WideningProduct(const View& to, const at::Tensor& a, const at::Tensor& b, bool add,
                            double scale) {
  const BlasOperand left = OperandOf(a), right = OperandOf(b);
  cblas_gemm_bf16bf16f32(BlasOperand::kRowMajor, left.transpose, right.transpose,
                         static_cast<int>(to.rows), static_cast<int>(to.width),
                         static_cast<int>(a.size(1)), static_cast<float>(scale), a.data_ptr(),
                         left.stride, b.data_ptr(), right.stride, add ? 1.0f : 0.0f, to.as<float>(),
                         static_cast<int>(to.width));
}

// to (+)= scale * a b. bf16 in pieces of kProductRows: what the library takes for one is then
// bounded.
inline void Product(const View& to, const at::Tensor& a, const at::Tensor& b, bool add,
                    double scale = 1.0) {
  if (to.dtype == program::DType::kF32) {
    if (a.scalar_type() == at::kFloat) return WholeProduct(to, a, b, add, scale);
    return WideningProduct(to, a, b, add, scale);
  }
  for (int64_t first = 0; first < to.rows; first += program::kProductRows) {
    const int64_t rows = std::min(program::kProductRows, to.rows - first);
    WholeProduct(to.Rows(first, rows), a.narrow(0, first, rows), b, add, scale);
  }
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
