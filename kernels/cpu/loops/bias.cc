// Inner loop of the bias' gradient.
#include "kernels/bias.h"
#include "kernels/cpu/loops/column_sums.h"
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

// Four rows at a time, which memory delivers side by side; added one after another all the same.
template <typename T>
void AddRowsInto(const BiasBackwardParams& p, Range rows, Range columns, float* sums) {
  const int64_t n = columns.end - columns.begin;
  const auto row = [&](int64_t i) { return RowOf<T>(p.dy, i, p.dy_stride) + columns.begin; };
  int64_t i = rows.begin;
  for (; i + 4 <= rows.end; i += 4) {
    const T *dy = row(i), *second = row(i + 1), *third = row(i + 2), *fourth = row(i + 3);
    ForVectors(n, [&](int64_t c, auto part) SNUG_LAMBDA {
      const F32x16 sum = (Load(sums + c, part) + Load(dy + c, part)) + Load(second + c, part);
      Store(sums + c, (sum + Load(third + c, part)) + Load(fourth + c, part), part);
    });
  }
  for (; i < rows.end; ++i) {
    const T* dy = row(i);
    ForVectors(n, [&](int64_t c, auto part) SNUG_LAMBDA {
      Store(sums + c, Load(sums + c, part) + Load(dy + c, part), part);
    });
  }
}

}  // namespace

void BiasBackwardColumns(const BiasBackwardParams& p, Range columns) {
  ByType(p.dtype, [&](auto t) {
    ColumnSums(p.N, columns, p.db, p.accumulate, [&](Range rows, Range part, float* sums) {
      AddRowsInto<decltype(t)>(p, rows, part, sums);
    });
  });
}

}  // namespace snug::kernels::SNUG_ISA
