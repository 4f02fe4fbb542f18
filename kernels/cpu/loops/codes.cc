// Inner loop of backward from codes.
#include "kernels/cpu/loops/codes.h"

#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/range.h"

namespace snug::kernels::SNUG_ISA {
namespace {

template <typename T, int kBits>
void BackwardTyped(const CodeBackwardParams& p, Range rows) {
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* dy = RowOf<T>(p.dy, i, p.dy_stride);
    const uint8_t* codes = p.codes + i * p.code_stride;
    T* dx = RowOf<T>(p.dx, i, p.dx_stride);
    ForVectors(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
      const I32x16 code = LoadCodes<kBits>(codes, c, part);
      F32x16 v = Load(dy + c, part) * SlopesOf<kBits>(code, p.slope);
      if (p.accumulate) v += Load(dx + c, part);
      Store(dx + c, v, part);
    });
  }
}

}  // namespace

void CodeBackwardRows(const CodeBackwardParams& p, Range rows) {
  ByType(p.dtype, [&](auto t) {
    using T = decltype(t);
    p.bits == 1 ? BackwardTyped<T, 1>(p, rows) : BackwardTyped<T, 2>(p, rows);
  });
}

}  // namespace snug::kernels::SNUG_ISA
