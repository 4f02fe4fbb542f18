// Means of rows on the CPU: checks, and division of groups among threads.
#include "kernels/mean_rows.h"

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {

SNUG_VERSIONS(MeanRowsForwardGroups, void(const MeanRowsForwardParams&, Range));
SNUG_VERSIONS(MeanRowsBackwardGroups, void(const MeanRowsBackwardParams&, Range));

Error MeanRowsForward(const MeanRowsForwardParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.That(p.G >= 1, ErrorCode::kBadShape, "G")
      .Type(p.dtype, "dtype")
      .Table(p.x, "x", p.x_stride, "x_stride")
      .Rows(p.y, "y", p.y_stride, "y_stride");
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::MeanRowsForward, p, stream);
  cpu::ParallelFor(p.N, p.N * (p.G + 1) * p.C * SizeOf(p.dtype),
                   [&](Range groups) { MeanRowsForwardGroups(p, groups); });
  return {};
}

Error MeanRowsBackward(const MeanRowsBackwardParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.That(p.G >= 1, ErrorCode::kBadShape, "G")
      .Type(p.dtype, "dtype")
      .Rows(p.dy, "dy", p.dy_stride, "dy_stride")
      .Table(p.dx, "dx", p.dx_stride, "dx_stride");
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::MeanRowsBackward, p, stream);
  cpu::ParallelFor(p.N, p.N * (p.G + 1) * p.C * SizeOf(p.dtype),
                   [&](Range groups) { MeanRowsBackwardGroups(p, groups); });
  return {};
}

}  // namespace snug::kernels
