// Inner loops of quantising and dequantising, and of ranges.
#include "kernels/quantize.h"

#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/quantized.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

// Units that are reduced together, as far as they lie side by side: rows are read as they lie.
constexpr int64_t kTogether = 32;

// Minimum, maximum and poison of the rows [rows) that are of row group `row_group`, for each of the
// groups of `width` columns in [columns): units of UpdateRanges.
template <typename T>
void ReduceUnits(const UpdateRangesParams& p, Range rows, int64_t row_group, Range columns,
                 float* results) {
  const int64_t R = p.grouping.run_rows, row_groups = p.grouping.row_groups;
  const int64_t width = GroupColumns(p.grouping, p.C);
  const int64_t units = (columns.end - columns.begin) / width;
  for (int64_t u = 0; u < units; ++u) {  // No rows: nothing to widen the range with.
    results[3 * u] = FloatOfBits(kInfinityBits);
    results[3 * u + 1] = -FloatOfBits(kInfinityBits);
    results[3 * u + 2] = 0.0f;
  }
  bool any = false;
  MinMax all[kTogether];
  int64_t run = rows.begin / R;
  run += (row_group - run % row_groups + row_groups) % row_groups;
  for (; run * R < rows.end; run += row_groups) {
    const int64_t begin = run * R < rows.begin ? rows.begin : run * R;
    const int64_t end = (run + 1) * R < rows.end ? (run + 1) * R : rows.end;
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t u = 0; u < units; ++u) {
        const T* x = RowOf<T>(p.x, i, p.x_stride) + columns.begin + u * width;
        const float first = Load(x, Part{1})[0];
        MinMax unit = any ? all[u] : MinMax::From(first);
        ForVectors(width,
                   [&](int64_t c, auto part) SNUG_LAMBDA { unit.Add(LoadOr(x + c, part, first)); });
        all[u] = unit;
      }
      any = true;
    }
  }
  for (int64_t u = 0; any && u < units; ++u) all[u].Reduce(results + 3 * u);
}

}  // namespace

// Units are numbered part by part, in each group by group; each leaves three floats.
void ReduceRanges(const UpdateRangesParams& p, Range units) {
  const int64_t width = GroupColumns(p.grouping, p.C), across = p.C / width;
  const int64_t groups = p.grouping.row_groups * across, parts = RangeParts(p.N, groups);
  const int64_t rows_per_part = (p.N + parts - 1) / parts;
  for (int64_t unit = units.begin; unit < units.end;) {
    const int64_t part = unit / groups, group = unit % groups, column = group % across;
    const int64_t side_by_side = across - column < kTogether ? across - column : kTogether;
    const int64_t left = units.end - unit, some = left < side_by_side ? left : side_by_side;
    const int64_t begin = part * rows_per_part, end = begin + rows_per_part;
    const Range rows = {begin, end < p.N ? end : p.N};
    ByType(p.dtype, [&](auto t) {
      ReduceUnits<decltype(t)>(p, rows, group / across,
                               Range{column * width, (column + some) * width},
                               static_cast<float*>(p.workspace) + 3 * unit);
    });
    unit += some;
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
