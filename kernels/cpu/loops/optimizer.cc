// Inner loops over parameters: AdamW and the sum of squares.
#include <cmath>

#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/entries.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

SNUG_INLINE F32x16 Sqrt(F32x16 v) {
  for (int64_t lane = 0; lane < kLanes; ++lane) v[lane] = std::sqrt(v[lane]);
  return v;
}

using F64x8 = double __attribute__((vector_size(64)));
using F32x8 = float __attribute__((vector_size(32)));

SNUG_INLINE double SumLanes(F64x8 v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

template <typename T>
double SumSquaresTyped(const T* x, int64_t n) {
  F64x8 low{}, high{};
  ForVectors(n, [&](int64_t i, auto part) SNUG_LAMBDA {
    const F32x16 v = Load(x + i, part);
    F32x8 halves[2];
    memcpy(halves, &v, sizeof(v));
    const F64x8 a = __builtin_convertvector(halves[0], F64x8);
    const F64x8 b = __builtin_convertvector(halves[1], F64x8);
    low += a * a;
    high += b * b;
  });
  return SumLanes(low + high);
}

}  // namespace

void AdamWElements(const AdamWTensor& tensor, const AdamWScalars& s, Range elements) {
  float* p = tensor.p + elements.begin;
  const float* g = tensor.g + elements.begin;
  float* m = tensor.m + elements.begin;
  float* v = tensor.v + elements.begin;
  const float decay = tensor.decay ? s.decay : 1.0f;
  ForVectors(elements.end - elements.begin, [&](int64_t i, auto part) SNUG_LAMBDA {
    const F32x16 gradient = Load(g + i, part) * s.grad_scale;
    F32x16 first = Load(m + i, part), second = Load(v + i, part);
    first += s.one_minus_beta1 * (gradient - first);
    second = second * s.beta2 + (s.one_minus_beta2 * gradient) * gradient;
    const F32x16 denominator = Sqrt(second) / s.sqrt_correction2 + s.eps;
    const F32x16 decayed = Load(p + i, part) * decay;
    Store(p + i, decayed + (s.minus_step_size * first) / denominator, part);
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
