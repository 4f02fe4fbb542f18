// Inner loops of quantising and dequantising, and of ranges.
#include "kernels/quantize.h"

#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/quantized.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

// Minimum, maximum and poison of the rows [rows) that are of row group `row_group`, in columns
// [columns): a unit of UpdateRanges.
template <typename T>
void ReduceUnit(const UpdateRangesParams& p, Range rows, int64_t row_group, Range columns,
                float* result) {
  const int64_t R = p.grouping.run_rows, groups = p.grouping.row_groups;
  const int64_t n = columns.end - columns.begin;
  result[0] = FloatOfBits(kInfinityBits);  // No rows: nothing to widen the range with.
  result[1] = -result[0];
  result[2] = 0.0f;
  bool any = false;
  MinMax all = {};
  int64_t run = rows.begin / R;
  run += (row_group - run % groups + groups) % groups;
  for (; run * R < rows.end; run += groups) {
    const int64_t begin = run * R < rows.begin ? rows.begin : run * R;
    const int64_t end = (run + 1) * R < rows.end ? (run + 1) * R : rows.end;
    for (int64_t i = begin; i < end; ++i) {
      const T* x = RowOf<T>(p.x, i, p.x_stride) + columns.begin;
      const float first = Load(x, Part{1})[0];
      if (!any) all = MinMax::From(first);
      any = true;
      ForVectors(n, [&](int64_t c, auto part) SNUG_LAMBDA { all.Add(LoadOr(x + c, part, first)); });
    }
  }
  if (any) all.Reduce(result);
}

}  // namespace

// Units are numbered part by part, in each group by group; each leaves three floats.
void ReduceRanges(const UpdateRangesParams& p, Range units) {
  const int64_t width = GroupColumns(p.grouping, p.C), across = p.C / width;
  const int64_t groups = p.grouping.row_groups * across, parts = RangeParts(p.N, groups);
  const int64_t rows_per_part = (p.N + parts - 1) / parts;
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const int64_t part = unit / groups, group = unit % groups;
    const int64_t begin = part * rows_per_part, end = begin + rows_per_part;
    const Range rows = {begin, end < p.N ? end : p.N};
    const int64_t column = group % across * width;
    ByType(p.dtype, [&](auto t) {
      ReduceUnit<decltype(t)>(p, rows, group / across, Range{column, column + width},
                              static_cast<float*>(p.workspace) + 3 * unit);
    });
  }
}

void QuantizeRows(const QuantizeParams& p, Range rows) {
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    ForBlocks(i, p.C, [&](const BlockAt& at) {
      Floats128 x;
      ByType(p.dtype, [&](auto t) { LoadBlock(RowOf<decltype(t)>(p.x, i, p.x_stride), at, x); });
      QuantizeBlock(p.to, p.dither, at, x);
    });
  }
}

void DequantizeRows(const DequantizeParams& p, Range rows) {
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    ForBlocks(i, p.C, [&](const BlockAt& at) {
      Floats128 x;
      DequantizeBlock(p.from, at, x);
      ByType(p.dtype, [&](auto t) { StoreBlock(x, at, RowOf<decltype(t)>(p.y, i, p.y_stride)); });
    });
  }
}

}  // namespace snug::kernels::SNUG_ISA
