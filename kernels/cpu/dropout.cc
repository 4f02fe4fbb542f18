// Dropout on the CPU: checks, and division of rows among threads.
#include "kernels/dropout.h"

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {

SNUG_VERSIONS(DropoutRows, void(const DropoutParams&, Range));

Error Dropout(const DropoutParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype")
      .Rows(p.x, "x", p.x_stride, "x_stride")
      .Rows(p.y, "y", p.y_stride, "y_stride")
      .That(p.rate >= 0.0 && p.rate < 1.0, ErrorCode::kBadValue, "rate")
      .That(p.rows_per_draw == 0 || (p.rows_per_draw > 0 && p.row_index == nullptr),
            ErrorCode::kBadValue, "rows_per_draw")
      .Draws(p.site, p.first_row, (p.C + 63) / 64 * 16);
  if (p.mask != nullptr) check.Bytes(p.mask, "mask", p.mask_stride, 1, "mask_stride");
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::Dropout, p, stream);
  constexpr int64_t kCostOfWord = 8;  // In bytes of traffic that would take as long.
  cpu::ParallelFor(p.N, p.N * p.C * (2 * SizeOf(p.dtype) + kCostOfWord),
                   [&](Range rows) { DropoutRows(p, rows); });
  return {};
}

}  // namespace snug::kernels
