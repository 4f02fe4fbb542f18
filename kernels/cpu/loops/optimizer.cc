// Inner loops over parameters: AdamW and the sum of squares.
#include <cmath>

#include "kernels/adamw.h"
#include "kernels/cpu/loops/adamw.h"
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"
#include "kernels/grad_norm.h"

namespace snug::kernels::SNUG_ISA {
namespace {

SNUG_INLINE F32x16 Sqrt(F32x16 v) {
  for (int64_t lane = 0; lane < kLanes; ++lane) v[lane] = std::sqrt(v[lane]);
  return v;
}

using F32x4 = float __attribute__((vector_size(16)));
using F64x4 = double __attribute__((vector_size(32)));

// Four lanes at a time: GCC 12 converts wider vectors to fp64 lane by lane where registers are
// narrower.
template <typename T>
double SumSquaresTyped(const T* x, int64_t n) {
  F64x4 sums[4] = {};
  ForVectors(n, [&](int64_t i, auto part) SNUG_LAMBDA {
    const F32x16 v = Load(x + i, part);
    F32x4 quarters[4];
    memcpy(quarters, &v, sizeof(v));
    for (int k = 0; k < 4; ++k) {
      const F64x4 wide = __builtin_convertvector(quarters[k], F64x4);
      sums[k] += wide * wide;
    }
  });
  const F64x4 sum = (sums[0] + sums[2]) + (sums[1] + sums[3]);
  return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

}  // namespace

void AdamWElements(const AdamWTensor& tensor, const AdamWScalars& s, Range elements) {
  float* p = tensor.p + elements.begin;
  const float* g = tensor.g + elements.begin;
  float* m = tensor.m + elements.begin;
  float* v = tensor.v + elements.begin;
  bf16* copy = tensor.copy == nullptr ? nullptr : tensor.copy + elements.begin;
  const float decay = tensor.decay ? s.decay : 1.0f;
  ForVectors(elements.end - elements.begin, [&](int64_t i, auto part) SNUG_LAMBDA {
    const F32x16 gradient = Load(g + i, part) * s.grad_scale;
    F32x16 first = Load(m + i, part), second = Load(v + i, part);
    first += s.one_minus_beta1 * (gradient - first);
    second = second * s.beta2 + (s.one_minus_beta2 * gradient) * gradient;
    const F32x16 denominator = Sqrt(second) / s.sqrt_correction2 + s.eps;
    const F32x16 decayed = Load(p + i, part) * decay;
    const F32x16 next = decayed + (s.minus_step_size * first) / denominator;
    Store(p + i, next, part);
    if (copy != nullptr) Store(copy + i, next, part);
    Store(m + i, first, part);
    Store(v + i, second, part);
  });
}

double SumSquaresElements(const NormTensor& tensor, Range elements) {
  double sum = 0.0;
  ByType(tensor.dtype, [&](auto t) {
    using T = decltype(t);
    sum = SumSquaresTyped(static_cast<const T*>(tensor.x) + elements.begin,
                          elements.end - elements.begin);
  });
  return sum;
}

}  // namespace snug::kernels::SNUG_ISA
