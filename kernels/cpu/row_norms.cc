// Norms of rows on the CPU: checks, and division of rows among threads.
#include "kernels/row_norms.h"

#include <cmath>

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {

SNUG_VERSIONS(RowNormsRows, void(const RowNormsParams&, Range));

Error RowNorms(const RowNormsParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype")
      .Rows(p.x, "x", p.x_stride, "x_stride")
      .PerRow(p.norms, "norms")
      .That(std::isfinite(p.scale) && p.scale > 0.0f, ErrorCode::kBadValue, "scale");
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::RowNorms, p, stream);
  cpu::ParallelFor(p.N, p.N * p.C * SizeOf(p.dtype), [&](Range rows) { RowNormsRows(p, rows); });
  return {};
}

}  // namespace snug::kernels
