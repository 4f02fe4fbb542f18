// Inner loops of dropout: 16 Philox blocks side by side give the words of 64 columns.
#include "kernels/dropout.h"
#include "kernels/cpu/loops/codes.h"
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/random.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

// What row i of the call draws: its number among those that draw.
SNUG_INLINE int64_t DrawnRow(const DropoutParams& p, int64_t i) {
  if (p.rows_per_draw > 0) return (p.first_row + i) / p.rows_per_draw;
  return p.first_row + (p.row_index == nullptr ? i : p.row_index[i]);
}

template <typename T>
void DropoutTyped(const DropoutParams& p, Range rows) {
  constexpr int64_t kColumns = 4 * kLanes;
  const int64_t groups = (p.C + kColumns - 1) / kColumns;
  const int32_t threshold = ThresholdOf(p.rate);
  const float scale = static_cast<float>(1.0 / (1.0 - p.rate));
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const int64_t row = DrawnRow(p, i);
    I32x16 of_all{};
    if (p.rows_per_draw > 0) {
      const uint64_t first = static_cast<uint64_t>(row * groups) * kLanes;
      of_all += Dropped(RandomWords(p.site, first).word[0], threshold)[0];
    }
    const T* x = RowOf<T>(p.x, i, p.x_stride);
    T* y = RowOf<T>(p.y, i, p.y_stride);
    uint8_t* mask = p.mask == nullptr ? nullptr : p.mask + i * p.mask_stride;
    for (int64_t group = 0; group < groups; ++group) {
      const uint64_t first = static_cast<uint64_t>(row * groups + group) * kLanes;
      Words words{};
      if (p.rows_per_draw == 0) words = RandomWords(p.site, first);
      const int64_t begin = group * kColumns;
      const int64_t n = p.C - begin < kColumns ? p.C - begin : kColumns;
      ForVectors(n, [&](int64_t c, auto part) SNUG_LAMBDA {
        const I32x16 dropped =
            p.rows_per_draw > 0 ? of_all : Dropped(words.word[c / kLanes], threshold);
        F32x16 v = Load(x + begin + c, part) * Select(dropped, F32x16{}, Splat(scale));
        if (p.accumulate) v += Load(y + begin + c, part);
        Store(y + begin + c, v, part);
        if (mask != nullptr) StoreCodes<1>(mask, begin + c, Gathered<1>(dropped + 1), part);
      });
    }
  }
}

}  // namespace

void DropoutRows(const DropoutParams& p, Range rows) {
  ByType(p.dtype, [&](auto t) { DropoutTyped<decltype(t)>(p, rows); });
}

}  // namespace snug::kernels::SNUG_ISA
