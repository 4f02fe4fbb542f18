// Inner loop of the bias' gradient.
#include "kernels/bias.h"
#include "kernels/cpu/loops/column_sums.h"
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

// Adds rows i .. i + kRows - 1, one after another.
template <int kRows, typename T>
SNUG_INLINE void AddRowsInto(const BiasBackwardParams& p, int64_t i, Range columns, float* sums) {
  const int64_t ahead = Ahead(i, kRows, p.N, p.dy_stride);
  const T* dy[kRows];
  for (int k = 0; k < kRows; ++k) dy[k] = RowOf<T>(p.dy, i + k, p.dy_stride) + columns.begin;
  ForVectors(columns.end - columns.begin, [&](int64_t c, auto part) SNUG_LAMBDA {
    F32x16 sum = Load(sums + c, part);
    for (const T* row : dy) {
      Fetch(row + ahead + c);
      sum += Load(row + c, part);
    }
    Store(sums + c, sum, part);
  });
}

}  // namespace

void BiasBackwardColumns(const BiasBackwardParams& p, Range columns) {
  ByType(p.dtype, [&](auto t) {
    using T = decltype(t);
    ColumnSums(p.N, columns, p.db, p.accumulate, [&](Range rows, Range part, float* sums) {
      ByFours(rows,
              [&](auto together, int64_t i) { AddRowsInto<together.kRows, T>(p, i, part, sums); });
    });
  });
}

}  // namespace snug::kernels::SNUG_ISA
