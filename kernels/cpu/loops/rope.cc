// Inner loops of the rotary embedding.
#include "kernels/rope.h"
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

template <typename T, bool kBackward>
void RopeTyped(const RopeParams& p, Range rows) {
  const int64_t turned = p.R == 0 ? p.D : p.R, half = turned / 2;
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const float* cos = p.cos + i * half;
    const float* sin = p.sin + i * half;
    for (int64_t head = 0; head < p.heads; ++head) {
      const T* x = RowOf<T>(p.x, i, p.x_stride) + head * p.D;
      T* y = RowOf<T>(p.y, i, p.y_stride) + head * p.D;
      ForVectors(half, [&](int64_t j, auto part) SNUG_LAMBDA {
        const F32x16 a = Load(x + j, part), b = Load(x + half + j, part);
        const F32x16 c = Load(cos + j, part);
        const F32x16 s = kBackward ? -Load(sin + j, part) : Load(sin + j, part);
        Store(y + j, a * c - b * s, part);
        Store(y + half + j, b * c + a * s, part);
      });
      if (y != x) memcpy(y + turned, x + turned, (p.D - turned) * sizeof(T));
    }
  }
}

}  // namespace

void RopeRows(const RopeParams& p, bool backward, Range rows) {
  ByType(p.dtype, [&](auto t) {
    if (backward) {
      RopeTyped<decltype(t), true>(p, rows);
    } else {
      RopeTyped<decltype(t), false>(p, rows);
    }
  });
}

}  // namespace snug::kernels::SNUG_ISA
