// A norm's affine step on the CPU: checks, and division of rows (of columns, for the sums) among
// threads.
#include "kernels/affine.h"

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {

SNUG_VERSIONS(AffineForwardRows, void(const AffineForwardParams&, Range));
SNUG_VERSIONS(AffineBackwardColumns, void(const AffineBackwardParams&, Range));

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
  if (p.dgamma != nullptr) check.Rows(p.xhat, "xhat", p.xhat_stride, "xhat_stride");
  if (stream != nullptr && (p.dgamma != nullptr || p.dbeta != nullptr)) {
    check.Pointer(p.workspace, "workspace");
  }
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::AffineBackward, p, stream);
  cpu::ParallelColumns(p.C, 3 * p.N * p.C * SizeOf(p.dtype),
                       [&](Range columns) { AffineBackwardColumns(p, columns); });
  return {};
}

}  // namespace snug::kernels
