// RMS norm on the CPU: checks, and division of rows (of columns, for dgamma) among threads.
#include "kernels/rms_norm.h"

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {

SNUG_VERSIONS(NormalizeForwardRows, void(const NormalizeForwardParams&, Range));
SNUG_VERSIONS(NormalizeBackwardRows, void(const NormalizeBackwardParams&, Range));
SNUG_VERSIONS(AffineForwardRows, void(const AffineForwardParams&, Range));
SNUG_VERSIONS(AffineBackwardColumns, void(const AffineBackwardParams&, Range));
SNUG_VERSIONS(RmsNormForwardRows, void(const RmsNormForwardParams&, Range));
SNUG_VERSIONS(RmsNormBackwardRows, void(const RmsNormBackwardParams&, Range));
SNUG_VERSIONS(RmsNormBackwardGammaColumns, void(const RmsNormBackwardParams&, Range));

Error NormalizeForward(const NormalizeForwardParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype")
      .Rows(p.x, "x", p.x_stride, "x_stride")
      .Rows(p.xhat, "xhat", p.xhat_stride, "xhat_stride")
      .PerRow(p.r, "r")
      .That(p.eps >= 0.0f, ErrorCode::kBadValue, "eps");
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::NormalizeForward, p, stream);
  cpu::ParallelFor(p.N, 2 * p.N * p.C * SizeOf(p.dtype),
                   [&](Range rows) { NormalizeForwardRows(p, rows); });
  return {};
}

Error NormalizeBackward(const NormalizeBackwardParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype")
      .Rows(p.dxhat, "dxhat", p.dxhat_stride, "dxhat_stride")
      .Rows(p.xhat, "xhat", p.xhat_stride, "xhat_stride")
      .PerRow(p.r, "r")
      .Rows(p.dx, "dx", p.dx_stride, "dx_stride");
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::NormalizeBackward, p, stream);
  cpu::ParallelFor(p.N, 3 * p.N * p.C * SizeOf(p.dtype),
                   [&](Range rows) { NormalizeBackwardRows(p, rows); });
  return {};
}

Error AffineForward(const AffineForwardParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype")
      .Type(p.gamma_dtype, "gamma_dtype")
      .Rows(p.xhat, "xhat", p.xhat_stride, "xhat_stride")
      .PerRow(p.gamma, "gamma")
      .Rows(p.z, "z", p.z_stride, "z_stride");
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::AffineForward, p, stream);
  cpu::ParallelFor(p.N, 2 * p.N * p.C * SizeOf(p.dtype),
                   [&](Range rows) { AffineForwardRows(p, rows); });
  return {};
}

Error AffineBackward(const AffineBackwardParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype")
      .Type(p.gamma_dtype, "gamma_dtype")
      .Rows(p.dz, "dz", p.dz_stride, "dz_stride");
  if (p.dxhat != nullptr) {
    check.PerRow(p.gamma, "gamma").Rows(p.dxhat, "dxhat", p.dxhat_stride, "dxhat_stride");
  }
  if (p.dgamma != nullptr) {
    check.Rows(p.xhat, "xhat", p.xhat_stride, "xhat_stride")
        .That(stream == nullptr || p.workspace != nullptr, ErrorCode::kNullPointer, "workspace");
  }
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::AffineBackward, p, stream);
  cpu::ParallelColumns(p.C, 3 * p.N * p.C * SizeOf(p.dtype),
                       [&](Range columns) { AffineBackwardColumns(p, columns); });
  return {};
}

Error RmsNormForward(const RmsNormForwardParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype")
      .Type(p.gamma_dtype, "gamma_dtype")
      .Rows(p.x, "x", p.x_stride, "x_stride")
      .PerRow(p.gamma, "gamma")
      .Rows(p.z, "z", p.z_stride, "z_stride")
      .PerRow(p.r, "r")
      .That(p.eps >= 0.0f, ErrorCode::kBadValue, "eps");
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::RmsNormForward, p, stream);
  cpu::ParallelFor(p.N, 2 * p.N * p.C * SizeOf(p.dtype),
                   [&](Range rows) { RmsNormForwardRows(p, rows); });
  return {};
}

Error RmsNormBackward(const RmsNormBackwardParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype")
      .Type(p.gamma_dtype, "gamma_dtype")
      .Rows(p.dz, "dz", p.dz_stride, "dz_stride")
      .Rows(p.x, "x", p.x_stride, "x_stride")
      .PerRow(p.r, "r");
  if (p.dx != nullptr) check.PerRow(p.gamma, "gamma").Rows(p.dx, "dx", p.dx_stride, "dx_stride");
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::RmsNormBackward, p, stream);
  if (p.dgamma != nullptr) {  // Before dx, which may be written over dz.
    cpu::ParallelColumns(p.C, 2 * p.N * p.C * SizeOf(p.dtype),
                         [&](Range columns) { RmsNormBackwardGammaColumns(p, columns); });
  }
  if (p.dx == nullptr) return {};
  cpu::ParallelFor(p.N, 3 * p.N * p.C * SizeOf(p.dtype),
                   [&](Range rows) { RmsNormBackwardRows(p, rows); });
  return {};
}

}  // namespace snug::kernels
