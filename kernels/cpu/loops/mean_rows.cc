// Inner loops of means of rows.
#include "kernels/mean_rows.h"
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/output.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

// Columns that are summed together: pieces of rows that are long enough for the prefetcher.
constexpr int64_t kStrip = 16;     // Vectors.
constexpr int64_t kTogether = 32;  // Rows.

template <typename T>
void MeanOfStrip(const MeanRowsForwardParams& p, int64_t i, int64_t begin, int64_t width) {
  F32x16 sums[kStrip] = {};
  for (int64_t first = 0; first < p.G; first += kTogether) {
    const int64_t end = first + kTogether < p.G ? first + kTogether : p.G;
    F32x16 few[kStrip] = {};
    for (int64_t j = first; j < end; ++j) {
      const T* x = RowOf<T>(p.x, i * p.G + j, p.x_stride) + begin;
      ForVectors(width,
                 [&](int64_t c, auto part) SNUG_LAMBDA { few[c / kLanes] += Load(x + c, part); });
    }
    for (int64_t v = 0; v < kStrip; ++v) sums[v] += few[v];
  }
  T* y = RowOf<T>(p.y, i, p.y_stride) + begin;
  const float share = 1.0f / static_cast<float>(p.G);
  ForVectors(width, [&](int64_t c, auto part)
                        SNUG_LAMBDA { Store(y + c, sums[c / kLanes] * share, part); });
}

template <typename T>
void ForwardTyped(const MeanRowsForwardParams& p, Range groups) {
  constexpr int64_t kColumns = kStrip * kLanes;
  for (int64_t i = groups.begin; i < groups.end; ++i)
    for (int64_t c = 0; c < p.C; c += kColumns)
      MeanOfStrip<T>(p, i, c, p.C - c < kColumns ? p.C - c : kColumns);
}

// Rows of one mean have one gradient: it is worked out for the first, and copied.
template <typename T>
void BackwardTyped(const MeanRowsBackwardParams& p, Range groups) {
  const float share = 1.0f / static_cast<float>(p.G);
  const Output out(p.accumulate ? 0 : p.N * p.G * p.C * static_cast<int64_t>(sizeof(T)));
  for (int64_t i = groups.begin; i < groups.end; ++i) {
    const T* dy = RowOf<T>(p.dy, i, p.dy_stride);
    T* first = RowOf<T>(p.dx, i * p.G, p.dx_stride);
    for (int64_t j = 0; j < (p.accumulate ? p.G : 1); ++j) {
      T* dx = RowOf<T>(p.dx, i * p.G + j, p.dx_stride);
      ForVectors(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
        F32x16 d = Load(dy + c, part) * share;
        if (p.accumulate) d += Load(dx + c, part);
        Store(dx + c, d, part);
      });
    }
    for (int64_t j = 1; j < p.G && !p.accumulate; ++j)
      out.Copy(RowOf<T>(p.dx, i * p.G + j, p.dx_stride), first,
               p.C * static_cast<int64_t>(sizeof(T)));
  }
}

}  // namespace

void MeanRowsForwardGroups(const MeanRowsForwardParams& p, Range groups) {
  ByType(p.dtype, [&](auto t) { ForwardTyped<decltype(t)>(p, groups); });
}

void MeanRowsBackwardGroups(const MeanRowsBackwardParams& p, Range groups) {
  ByType(p.dtype, [&](auto t) { BackwardTyped<decltype(t)>(p, groups); });
}

}  // namespace snug::kernels::SNUG_ISA
