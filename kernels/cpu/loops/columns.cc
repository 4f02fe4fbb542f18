// Inner loops of columns by id, some rows of x at a time: as many as elements of y make a cache
// line, which is then read or written once and whole.
#include "kernels/columns.h"

#include "kernels/cpu/loops/output.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/transpose.h"

namespace snug::kernels::SNUG_ISA {
namespace {

// body(first row of x, Whole or Part of a line) for rows in ranges that end at multiples of a line.
template <typename Body>
SNUG_INLINE void ForLines(Range rows, Body body) {
  for (int64_t r = rows.begin; r < rows.end;) {
    const int64_t line_end = (r / kLanes + 1) * kLanes;
    const int64_t end = line_end < rows.end ? line_end : rows.end;
    if (end - r == kLanes) {
      body(r, Whole{});
    } else {
      body(r, Part{end - r});
    }
    r = end;
  }
}

// Rows of y whose lines are turned to rows before they are added, so that these walk one row of x,
// which L1 holds. Their distance in L1 is not a power of two.
constexpr int64_t kTogether = 1024;

// turned[lane][i]: column r + lane of row i of these rows of y.
template <typename Extent>
SNUG_INLINE void Turn(const ColumnsParams& p, int64_t r, Range rows, Extent part,
                      float (&turned)[kLanes][kTogether + kLanes]) {
  for (int64_t first = rows.begin; first < rows.end; first += kLanes) {
    F32x16 lines[kLanes];
    for (int64_t k = 0; k < kLanes; ++k) {
      const int64_t i = first + k;
      lines[k] = i < rows.end ? Load(p.y + i * p.y_stride + r, part) : F32x16{};
    }
    Transpose(lines);
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      Store(turned[lane] + (first - rows.begin), lines[lane], Whole{});
    }
  }
}

}  // namespace

void GatherColumnsRows(const ColumnsParams& p, Range rows) {
  const Output out(p.N * p.R * static_cast<int64_t>(sizeof(float)));
  ForLines(rows, [&](int64_t r, auto part) SNUG_LAMBDA {
    for (int64_t i = 0; i < p.N; ++i) {
      const float* x = p.x + r * p.x_stride + p.ids[i];
      float line[kLanes] = {};
      for (int64_t lane = 0; lane < Count(part); ++lane) line[lane] = x[lane * p.x_stride];
      out.Put(p.y + i * p.y_stride + r, Load(line, Whole{}), part);
    }
  });
}

void AddColumnsRows(const ColumnsParams& p, Range rows) {
  float turned[kLanes][kTogether + kLanes];
  ForLines(rows, [&](int64_t r, auto part) SNUG_LAMBDA {
    for (int64_t first = 0; first < p.N; first += kTogether) {
      const int64_t count = p.N - first < kTogether ? p.N - first : kTogether;
      Turn(p, r, Range{first, first + count}, part, turned);
      for (int64_t lane = 0; lane < Count(part); ++lane) {
        float* x = p.x + (r + lane) * p.x_stride;
        for (int64_t i = 0; i < count; ++i) x[p.ids[first + i]] += turned[lane][i];
      }
    }
  });
}

}  // namespace snug::kernels::SNUG_ISA
