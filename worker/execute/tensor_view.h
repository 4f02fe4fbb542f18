// Views as tensors, for the ops that call ATen. No copies; the tensor is valid as long as the
// view's memory.
#ifndef WORKER_EXECUTE_TENSOR_VIEW_H_
#define WORKER_EXECUTE_TENSOR_VIEW_H_

#include <ATen/ATen.h>

#include "worker/execute/view.h"

namespace snug::execute {

inline at::ScalarType ScalarTypeOf(program::DType dtype) {
  return dtype == program::DType::kF32 ? at::kFloat : at::kBFloat16;
}

// (rows, width)
inline at::Tensor Matrix(const View& view) {
  return at::from_blob(view.data, {view.rows, view.width},
                       at::TensorOptions().dtype(ScalarTypeOf(view.dtype)));
}

// Of `dtype`, from the op's workspace.
inline at::Tensor Scratch(at::IntArrayRef shape, program::DType dtype) {
  return at::empty(shape, at::TensorOptions().dtype(ScalarTypeOf(dtype)));
}

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_TENSOR_VIEW_H_
