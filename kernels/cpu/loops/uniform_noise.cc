// Inner loop of uniform noise: 16 Philox blocks, four words each, for 64 columns.
#include "kernels/uniform_noise.h"

#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/random.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

template <typename T>
void NoiseTyped(const UniformNoiseParams& p, Range rows) {
  constexpr int64_t kColumns = 4 * kLanes;
  const int64_t blocks = (p.C + 3) / 4;
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    T* x = RowOf<T>(p.x, i, p.x_stride);
    for (int64_t begin = 0; begin < p.C; begin += kColumns) {
      const WordRun run =
          RandomRun(p.site, static_cast<uint64_t>((p.first_row + i) * blocks + begin / 4));
      const int64_t n = p.C - begin < kColumns ? p.C - begin : kColumns;
      ForVectors(n, [&](int64_t c, auto part) SNUG_LAMBDA {
        const I32x16 upper = As<I32x16>(run.of[c / kLanes] >> 8);  // ToUniform.
        const F32x16 u = Convert<F32x16>(upper) * (1.0f / (1 << 24));
        T* at = x + begin + c;
        Store(at, Load(at, part) + p.magnitude * (2.0f * u - 1.0f), part);
      });
    }
  }
}

}  // namespace

void UniformNoiseRows(const UniformNoiseParams& p, Range rows) {
  ByType(p.dtype, [&](auto t) { NoiseTyped<decltype(t)>(p, rows); });
}

}  // namespace snug::kernels::SNUG_ISA
