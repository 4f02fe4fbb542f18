// Inner loops over parameters: AdamW and the sum of squares.
#include "kernels/cpu/loops/adamw.h"
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"
#include "kernels/grad_norm.h"

namespace snug::kernels::SNUG_ISA {
namespace {

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
