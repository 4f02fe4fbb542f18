// Inner loop of row norms: sixteen vectors hold the chains.
#include "kernels/row_norms.h"

#include <cmath>

#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

constexpr int64_t kVectors = kNormChains / kLanes;

template <typename T>
float SquaresOf(const T* x, int64_t n) {
  F32x16 chains[kVectors] = {};
  int64_t c = 0;
  for (; c + kNormChains <= n; c += kNormChains) {
    for (int64_t k = 0; k < kVectors; ++k) {
      const F32x16 v = Load(x + c + k * kLanes, Whole{});
      chains[k] += v * v;
    }
  }
  ForVectors(n - c, [&](int64_t i, auto part) SNUG_LAMBDA {
    const F32x16 v = Load(x + c + i, part);
    chains[i / kLanes] += v * v;
  });
  for (int64_t width = kVectors / 2; width > 0; width /= 2) {
    for (int64_t k = 0; k < width; ++k) chains[k] += chains[k + width];
  }
  return SumLanes(chains[0]);
}

}  // namespace

void RowNormsRows(const RowNormsParams& p, Range rows) {
  ByType(p.dtype, [&](auto t) {
    using T = decltype(t);
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      p.norms[i] = std::sqrt(SquaresOf(RowOf<T>(p.x, i, p.x_stride), p.C)) * p.scale;
    }
  });
}

}  // namespace snug::kernels::SNUG_ISA
