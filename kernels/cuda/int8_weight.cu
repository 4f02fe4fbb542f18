// 8-bit weights on CUDA.
#include "kernels/int8_weight.h"

#include "kernels/cuda/code_packs.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/entries.h"
#include "kernels/cuda/maximum.cuh"

namespace snug::kernels::cuda {
namespace {

// A block a row, which is read again from cache.
template <typename T>
__global__ void __launch_bounds__(kMaxBlock) QuantizeRowsKernel(QuantizeInt8WeightParams p) {
  for (int64_t n = blockIdx.x; n < p.N; n += gridDim.x) {
    const T* w = static_cast<const T*>(p.w) + n * p.w_stride;
    float most = 0.0f;
    for (int64_t k = threadIdx.x; k < p.K; k += kMaxBlock) most = fmaxf(most, fabsf(Widen(w[k])));
    const float absmax = BlockMax(most), scale = Int8Scale(absmax);
    if (threadIdx.x == 0) p.to.absmax[n] = absmax;
    int8_t* codes = p.to.codes + n * p.to.codes_stride;
    for (int64_t k = threadIdx.x; k < p.K; k += kMaxBlock) codes[k] = Int8Code(Widen(w[k]), scale);
  }
}

template <typename T, bool kWide>
__global__ void __launch_bounds__(kMaxBlock)
    DequantizeRowsKernel(DequantizeInt8WeightParams p, ElementGrid grid) {
  ForElements(grid, [&](int64_t row, int64_t pack) {
    const EightAt at = {row, p.K, pack * kEight};
    const auto* codes =
        reinterpret_cast<const uint8_t*>(p.from.codes) + row * p.from.codes_stride + at.c;
    const Pack<uint8_t, kEight> bytes = LoadBytes<kWide, kEight>(codes, at.left());
    const float absmax = p.from.absmax[row];
    Floats<kEight> values;
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      values.at[i] = Int8Value(static_cast<int8_t>(bytes.at[i]), absmax);
    }
    StoreEight<kWide>(static_cast<T*>(p.w) + row * p.w_stride, at, values);
  });
}

}  // namespace

Error QuantizeInt8Weight(const QuantizeInt8WeightParams& p, Stream stream) {
  return ByType(p.dtype,
                [&](auto t) { return Launch(QuantizeRowsKernel<decltype(t)>, {p.N}, stream, p); });
}

Error DequantizeInt8Weight(const DequantizeInt8WeightParams& p, Stream stream) {
  const ElementGrid grid = ElementGridOf(p.N, Ceil(p.K, kEight));
  return ByType(p.dtype, [&](auto t) {
    using T = decltype(t);
    Quantized codes;
    codes.codes = p.from.codes;
    codes.codes_stride = p.from.codes_stride;
    const bool wide =
        Divides({p.w, p.w_stride, SizeOf(p.dtype)}, p.K, kEight) && DividesCodes(codes, p.K);
    return Launch(wide ? DequantizeRowsKernel<T, true> : DequantizeRowsKernel<T, false>,
                  {grid.blocks}, stream, p, grid);
  });
}

}  // namespace snug::kernels::cuda
