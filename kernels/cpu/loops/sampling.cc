// Inner loop of gathering with weights.
#include "kernels/sampling.h"

#include <cstring>

#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

template <typename T>
void GatherTyped(const GatherScaledRowsParams& p, Range rows) {
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* x = RowOf<T>(p.x, p.index[i], p.x_stride);
    T* y = RowOf<T>(p.y, i, p.y_stride);
    const float weight = p.weights[i];
    if (weight == 1.0f) {
      memcpy(y, x, p.C * sizeof(T));
    } else if (weight == 0.0f) {
      memset(y, 0, p.C * sizeof(T));
    } else {
      ForVectors(p.C, [&](int64_t c, auto part)
                          SNUG_LAMBDA { Store(y + c, Load(x + c, part) * weight, part); });
    }
  }
}

}  // namespace

void GatherScaledRowsRange(const GatherScaledRowsParams& p, Range rows) {
  ByType(p.dtype, [&](auto t) { GatherTyped<decltype(t)>(p, rows); });
}

}  // namespace snug::kernels::SNUG_ISA
