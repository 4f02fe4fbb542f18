// Inner loops over parameters: AdamW and the sum of squares.
#include "kernels/cpu/loops/adamw.h"
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"
#include "kernels/grad_norm.h"

namespace snug::kernels::SNUG_ISA {
namespace {

// As many lanes at a time as a register holds in fp64: GCC 12 converts wider vectors lane by lane.
#ifdef __AVX512F__
constexpr int kWideLanes = 8;
#else
constexpr int kWideLanes = 4;
#endif
constexpr int kWides = static_cast<int>(kLanes) / kWideLanes;
using F32xWide = float __attribute__((vector_size(kWideLanes * sizeof(float))));
using F64xWide = double __attribute__((vector_size(kWideLanes * sizeof(double))));

// The square of an fp32 is exact in fp64, so a fused multiply-add gives the same bits.
SNUG_INLINE void AddSquares(F64xWide& sum, F64xWide v) {
#if defined(__AVX512F__)
  sum = reinterpret_cast<F64xWide>(_mm512_fmadd_pd(
      reinterpret_cast<__m512d>(v), reinterpret_cast<__m512d>(v), reinterpret_cast<__m512d>(sum)));
#else
  sum += v * v;
#endif
}

// Sixteen chains, whatever a register holds, and always the same tree over them.
template <typename T>
double SumSquaresTyped(const T* x, int64_t n) {
  F64xWide sums[kWides] = {};
  ForVectors(n, [&](int64_t i, auto part) SNUG_LAMBDA {
    const F32x16 v = Load(x + i, part);
    F32xWide parts[kWides];
    ToMemory(parts, v);
    for (int k = 0; k < kWides; ++k) {
      AddSquares(sums[k], __builtin_convertvector(parts[k], F64xWide));
    }
  });
  double chains[kLanes];
  memcpy(chains, sums, sizeof(chains));
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t lane = 0; lane < width; ++lane) chains[lane] += chains[lane + width];
  }
  return chains[0];
}

}  // namespace

void AdamWElements(const AdamWTensor& tensor, const AdamWScalars& s, Range elements) {
  ForVectors(elements.end - elements.begin, [&](int64_t offset, auto part) SNUG_LAMBDA {
    const int64_t i = elements.begin + offset;
    const MomentLanes before = {Load(tensor.m + i, part), Load(tensor.v + i, part)};
    const MomentLanes after = UpdateLanes(tensor, s, i, before, part);
    Store(tensor.m + i, after.first, part);
    Store(tensor.v + i, after.second, part);
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
