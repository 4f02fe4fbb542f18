// Normalisation of rows on the CPU: checks, and division of rows among threads.
#include "kernels/normalize.h"

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {

SNUG_VERSIONS(NormalizeForwardRows, void(const NormalizeForwardParams&, Range));
SNUG_VERSIONS(NormalizeBackwardRows, void(const NormalizeBackwardParams&, Range));

namespace {

cpu::Check CheckForward(const NormalizeForwardParams& p) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype").Rows(p.x, "x", p.x_stride, "x_stride");
  if (p.xhat != nullptr || p.z == nullptr) {
    check.Rows(p.xhat, "xhat", p.xhat_stride, "xhat_stride").PerRow(p.r, "r");
  }
  check.That(p.eps >= 0.0f, ErrorCode::kBadValue, "eps")
      .That(p.norm <= Norm::kLayer, ErrorCode::kBadValue, "norm");
  if (p.residual != nullptr) {
    check.Rows(p.residual, "residual", p.residual_stride, "residual_stride")
        .Rows(p.h, "h", p.h_stride, "h_stride");
  }
  if (p.z != nullptr) {
    check.Type(p.gamma_dtype, "gamma_dtype")
        .Rows(p.z, "z", p.z_stride, "z_stride")
        .PerRow(p.gamma, "gamma")
        .That(p.z != p.xhat, ErrorCode::kBadValue, "z");
  }
  return check;
}

cpu::Check CheckBackward(const NormalizeBackwardParams& p) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype").Rows(p.dxhat, "dxhat", p.dxhat_stride, "dxhat_stride");
  if (p.x == nullptr || p.xhat != nullptr) check.Rows(p.xhat, "xhat", p.xhat_stride, "xhat_stride");
  if (p.xhat == nullptr) check.Rows(p.x, "x", p.x_stride, "x_stride");
  check.PerRow(p.r, "r")
      .Rows(p.dx, "dx", p.dx_stride, "dx_stride")
      .That(p.norm <= Norm::kLayer, ErrorCode::kBadValue, "norm");
  if (p.gamma != nullptr) check.Type(p.gamma_dtype, "gamma_dtype");
  return check;
}

}  // namespace

Error NormalizeForward(const NormalizeForwardParams& p, Stream stream) {
  const cpu::Check check = CheckForward(p);
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::NormalizeForward, p, stream);
  cpu::ParallelFor(p.N, 2 * p.N * p.C * SizeOf(p.dtype),
                   [&](Range rows) { NormalizeForwardRows(p, rows); });
  return {};
}

Error NormalizeBackward(const NormalizeBackwardParams& p, Stream stream) {
  const cpu::Check check = CheckBackward(p);
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::NormalizeBackward, p, stream);
  cpu::ParallelFor(p.N, 3 * p.N * p.C * SizeOf(p.dtype),
                   [&](Range rows) { NormalizeBackwardRows(p, rows); });
  return {};
}

}  // namespace snug::kernels
