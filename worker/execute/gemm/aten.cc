// ATen's out variants on views of the operands: MKL, whose buffers are its own.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "worker/execute/gemm/paths.h"

namespace snug::execute {
namespace {

// (rows, columns) as the product reads it, over rows that lie `stride` apart.
at::Tensor Operand(const void* data, at::IntArrayRef shape, int64_t stride, bool transposed) {
  const auto options = at::TensorOptions().dtype(at::kFloat);
  void* address = const_cast<void*>(data);
  if (transposed) return at::from_blob(address, shape, {1, stride}, options);
  return at::from_blob(address, shape, {stride, 1}, options);
}

}  // namespace

bool AtenGemm(const GemmCall& call) {
  if (call.dtype != program::DType::kF32) return false;
  const c10::InferenceMode no_autograd;
  const at::Tensor a = Operand(call.a, {call.m, call.k}, call.a_stride, call.a_transposed);
  const at::Tensor b = Operand(call.b, {call.k, call.n}, call.b_stride, call.b_transposed);
  at::Tensor c = Operand(call.c, {call.m, call.n}, call.c_stride, false);
  if (!call.add && call.alpha == 1.0f) {
    at::mm_out(c, a, b);
  } else {
    at::addmm_out(c, c, a, b, /*beta=*/call.add ? 1.0 : 0.0, /*alpha=*/call.alpha);
  }
  return true;
}

}  // namespace snug::execute
