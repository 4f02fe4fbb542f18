// Inner loops of means of rows.
#include "kernels/mean_rows.h"
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

template <typename T>
void ForwardTyped(const MeanRowsForwardParams& p, Range groups) {
  constexpr int64_t kTogether = 32;
  const float share = 1.0f / static_cast<float>(p.G);
  for (int64_t i = groups.begin; i < groups.end; ++i) {
    T* y = RowOf<T>(p.y, i, p.y_stride);
    ForVectors(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
      F32x16 sum{};
      for (int64_t first = 0; first < p.G; first += kTogether) {
        const int64_t end = first + kTogether < p.G ? first + kTogether : p.G;
        F32x16 few{};
        for (int64_t j = first; j < end; ++j)
          few += Load(RowOf<T>(p.x, i * p.G + j, p.x_stride) + c, part);
        sum += few;
      }
      Store(y + c, sum * share, part);
    });
  }
}

template <typename T>
void BackwardTyped(const MeanRowsBackwardParams& p, Range groups) {
  const float share = 1.0f / static_cast<float>(p.G);
  for (int64_t i = groups.begin; i < groups.end; ++i) {
    const T* dy = RowOf<T>(p.dy, i, p.dy_stride);
    for (int64_t j = 0; j < p.G; ++j) {
      T* dx = RowOf<T>(p.dx, i * p.G + j, p.dx_stride);
      ForVectors(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
        F32x16 d = Load(dy + c, part) * share;
        if (p.accumulate) d += Load(dx + c, part);
        Store(dx + c, d, part);
      });
    }
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
