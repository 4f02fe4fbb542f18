// Checks of a tensor of codes.
#ifndef KERNELS_CPU_QUANTIZED_CHECK_H_
#define KERNELS_CPU_QUANTIZED_CHECK_H_

#include <cstdint>

#include "kernels/cpu/check.h"
#include "kernels/quantize.h"

namespace snug::kernels::cpu {

inline void CheckGrouping(const Grouping& g, int64_t C, Check& check) {
  check.That(g.run_rows >= 1, ErrorCode::kBadShape, "run_rows")
      .That(g.row_groups >= 1, ErrorCode::kBadShape, "row_groups")
      .That(g.group_columns >= 0 && C >= 1 && (g.group_columns == 0 || C % g.group_columns == 0),
            ErrorCode::kBadShape, "group_columns");
}

// Of N rows of C elements, as `check` is.
inline void CheckQuantized(const Quantized& q, int64_t N, int64_t C, Check& check) {
  check.That(q.bits <= CodeBits::k4, ErrorCode::kBadDType, "bits")
      .That(q.kind <= RangeKind::kGroups, ErrorCode::kBadDType, "kind")
      .PerRow(q.codes, "codes")
      .PerRow(q.ranges, "ranges")
      .That(q.codes_stride >= CodeBytes(C, q.bits) || N <= 1, ErrorCode::kBadStride, "codes_stride")
      .That(q.first_row >= 0, ErrorCode::kBadValue, "first_row");
  if (q.kind == RangeKind::kGroups) CheckGrouping(q.grouping, C, check);
}

inline void CheckDither(const Dither& d, const Quantized& q, int64_t C, Check& check) {
  check.That(d.rounding <= Rounding::kNearest, ErrorCode::kBadDType, "rounding");
  if (d.rounding == Rounding::kStochastic && check.ok()) {
    check.Draws(d.site, q.first_row, RangeBlocks(C) * 16);
  }
}

}  // namespace snug::kernels::cpu

#endif  // KERNELS_CPU_QUANTIZED_CHECK_H_
