// Inner loop of the bias' gradient.
#include "kernels/bias.h"
#include "kernels/cpu/loops/column_sums.h"
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

// Rows i .. i + kRows - 1, which memory delivers side by side; added one by one all the same.
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
      int64_t i = rows.begin;
      for (; i + 4 <= rows.end; i += 4) AddRowsInto<4, T>(p, i, part, sums);
      for (; i < rows.end; ++i) AddRowsInto<1, T>(p, i, part, sums);
    });
  });
}

}  // namespace snug::kernels::SNUG_ISA
