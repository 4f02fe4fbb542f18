// Activations of one operand on the CPU: checks, and division of rows among threads.
#include "kernels/activation.h"

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {

SNUG_VERSIONS(ActivationForwardRows, void(const ActivationForwardParams&, Range));
SNUG_VERSIONS(ActivationBackwardRows, void(const ActivationBackwardParams&, Range));

Error ActivationForward(const ActivationForwardParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype")
      .Rows(p.x, "x", p.x_stride, "x_stride")
      .Rows(p.y, "y", p.y_stride, "y_stride")
      .Of(p.activation, "activation");
  if (p.codes != nullptr) {
    check.Bytes(p.codes, "codes", p.code_stride, 2, "code_stride").Of(p.two_bit, "two_bit");
  }
  if (p.mask != nullptr) {
    check.Bytes(p.mask, "mask", p.mask_stride, 1, "mask_stride")
        .That(p.activation == Activation::kRelu, ErrorCode::kBadValue, "mask");
  }
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::ActivationForward, p, stream);
  cpu::ParallelFor(p.N, 2 * p.N * p.C * SizeOf(p.dtype),
                   [&](Range rows) { ActivationForwardRows(p, rows); });
  return {};
}

Error ActivationBackward(const ActivationBackwardParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype")
      .Rows(p.dy, "dy", p.dy_stride, "dy_stride")
      .Rows(p.x, "x", p.x_stride, "x_stride")
      .Rows(p.dx, "dx", p.dx_stride, "dx_stride")
      .Of(p.activation, "activation");
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::ActivationBackward, p, stream);
  cpu::ParallelFor(p.N, 3 * p.N * p.C * SizeOf(p.dtype),
                   [&](Range rows) { ActivationBackwardRows(p, rows); });
  return {};
}

}  // namespace snug::kernels
