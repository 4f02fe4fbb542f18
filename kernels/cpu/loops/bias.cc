// Inner loop of the bias' gradient.
#include "kernels/bias.h"
#include "kernels/cpu/loops/column_sums.h"
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

template <typename T>
void AddRowsInto(const BiasBackwardParams& p, Range rows, Range columns, float* sums) {
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* dy = RowOf<T>(p.dy, i, p.dy_stride) + columns.begin;
    ForVectors(columns.end - columns.begin, [&](int64_t c, auto part) SNUG_LAMBDA {
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
