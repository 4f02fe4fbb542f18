// Activations with their input as codes on the CPU: checks, and division of rows among threads.
#include "kernels/quantized_activation.h"

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/quantized_check.h"

namespace snug::kernels {

SNUG_VERSIONS(QuantizedActivationForwardRows, void(const QuantizedActivationForwardParams&, Range));
SNUG_VERSIONS(QuantizedActivationBackwardRows,
              void(const QuantizedActivationBackwardParams&, Range));

namespace {
constexpr int64_t kCostOfElement = 16;  // Of h, drawing and rounding, in bytes of traffic.
}  // namespace

Error QuantizedActivationForward(const QuantizedActivationForwardParams& p, Stream stream) {
  const ActivationForwardParams& plain = p.activation;
  cpu::Check check(plain.N, plain.C);
  check.Type(plain.dtype, "dtype")
      .Of(plain.activation, "activation")
      .Rows(plain.x, "x", plain.x_stride, "x_stride")
      .Rows(plain.y, "y", plain.y_stride, "y_stride")
      .That(plain.codes == nullptr, ErrorCode::kBadValue, "activation.codes")
      .That(plain.mask == nullptr, ErrorCode::kBadValue, "activation.mask");
  cpu::CheckQuantized(p.x, plain.N, plain.C, check);
  cpu::CheckDither(p.dither, p.x, plain.C, check);
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::QuantizedActivationForward, p, stream);
  cpu::ParallelFor(plain.N, plain.N * plain.C * (2 * SizeOf(plain.dtype) + kCostOfElement),
                   [&](Range rows) { QuantizedActivationForwardRows(p, rows); });
  return {};
}

Error QuantizedActivationBackward(const QuantizedActivationBackwardParams& p, Stream stream) {
  const ActivationBackwardParams& plain = p.activation;
  cpu::Check check(plain.N, plain.C);
  check.Type(plain.dtype, "dtype")
      .Of(plain.activation, "activation")
      .Rows(plain.dy, "dy", plain.dy_stride, "dy_stride")
      .Rows(plain.dx, "dx", plain.dx_stride, "dx_stride")
      .That(plain.x == nullptr, ErrorCode::kBadValue, "activation.x");
  cpu::CheckQuantized(p.x, plain.N, plain.C, check);
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::QuantizedActivationBackward, p, stream);
  cpu::ParallelFor(plain.N, plain.N * plain.C * (2 * SizeOf(plain.dtype) + kCostOfElement),
                   [&](Range rows) { QuantizedActivationBackwardRows(p, rows); });
  return {};
}

}  // namespace snug::kernels
