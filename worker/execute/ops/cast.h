// Rows that need another number type, whole or piece by piece.
#ifndef WORKER_EXECUTE_OPS_CAST_H_
#define WORKER_EXECUTE_OPS_CAST_H_

#include <algorithm>

#include "kernels/rows.h"
#include "worker/execute/device.h"
#include "worker/execute/matrix.h"
#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/scratch.h"
#include "worker/program/workspace.h"

namespace snug::execute {

// A matrix, which may be a part of a wider one, to where another lies. Neither is transposed.
inline void Cast(const OpRun& run, const Matrix& from, const Matrix& to) {
  Check("CastRows", kernels::CastRows({.x = from.data,
                                       .y = to.data,
                                       .N = to.rows,
                                       .C = to.columns,
                                       .x_stride = from.stride,
                                       .y_stride = to.stride,
                                       .x_dtype = KernelType(from.dtype),
                                       .y_dtype = KernelType(to.dtype)},
                                      run.stream()));
}

// to += from, rounded once.
inline void AddInto(const OpRun& run, const View& from, const View& to) {
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
                                    run.stream()));
}

// Calls body(first, piece) for each piece of the rows; `piece` is fp32 workspace of that many.
template <typename Body>
void ForEachPiece(const OpRun& run, int64_t rows, int64_t width, const Body& body) {
  const int64_t most = std::min(program::ConvertRows(run.device->machine()), rows);
  const Scratch buffer(run, most, width, program::DType::kF32);
  for (int64_t first = 0; first < rows; first += most) {
    body(first, buffer.First(std::min(most, rows - first)));
  }
}

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_OPS_CAST_H_
