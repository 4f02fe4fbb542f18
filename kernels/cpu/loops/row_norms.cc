// Inner loop of row norms: sixteen vectors hold the chains.
#include "kernels/row_norms.h"

#include <cmath>

#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

constexpr int kVectors = kNormChains / kLanes;

// x, from which nothing is loaded before `v` is there. Without it no load of a row waits for
// another one; all at once they crowd out the hardware's own reading ahead, and memory delivers a
// fifth less. (Of 16 bits half as many bytes are on their way, which is few enough.)
template <typename T>
SNUG_INLINE const T* After(F32x16 v, const T* x) {
  int32_t zero = 0;
  asm("" : "+r"(zero));  // What the compiler does not know.
  return x + (As<I32x16>(v)[0] & zero);
}

template <typename T>
float SquaresOf(const T* x, int64_t n) {
  // Every index of a chain is known when this is compiled: they stay in registers.
  F32x16 chains[kVectors] = {};
  const auto add = [&](int k, const T* from, auto part) SNUG_LAMBDA {
    const F32x16 v = Load(from, part);
    chains[k] += v * v;
    return v;
  };
  for (; n >= kNormChains; n -= kNormChains, x += kNormChains) {
#pragma GCC unroll 16
    for (int k = 0; k < kVectors; ++k) {
      const F32x16 v = add(k, x + k * kLanes, Whole{});
      if (sizeof(T) == 4 && k % 4 == 3) x = After(v, x);
    }
  }
#pragma GCC unroll 16
  for (int k = 0; k < kVectors; ++k, n -= kLanes, x += kLanes) {
    if (n >= kLanes) {
      add(k, x, Whole{});
    } else if (n > 0) {
      add(k, x, Part{n});
    }
  }
#pragma GCC unroll 4
  for (int width = kVectors / 2; width > 0; width /= 2) {
#pragma GCC unroll 8
    for (int k = 0; k < width; ++k) chains[k] += chains[k + width];
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
