// Elements of frozen weights on CUDA.
#ifndef KERNELS_CUDA_FROZEN_WEIGHT_CUH_
#define KERNELS_CUDA_FROZEN_WEIGHT_CUH_

#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/frozen_linear.h"
#include "kernels/nf4_levels.h"

namespace snug::kernels::cuda {

// Read with an index that is not known when compiling.
static const __constant__ Nf4Levels nf4_levels = kNf4Levels;
static const __constant__ DynamicMap dynamic_map = kDynamicMap;

// Element e of the flat weight.
__device__ inline float Nf4Value(const Nf4Weight& w, int64_t e) {
  const uint32_t pair = static_cast<const uint8_t*>(w.codes)[e / 2];
  const uint32_t code = e % 2 == 0 ? pair >> 4 : pair & 15;
  return nf4_levels.at[code] * Nf4Absmax(w, dynamic_map, e / kNf4Block);
}

// Elements [e, e + V): V divides 64 and e, so that they are of one block.
template <int V>
__device__ inline Floats<V> Nf4Values(const Nf4Weight& w, int64_t e) {
  const auto pairs = LoadPack<V / 2>(static_cast<const uint8_t*>(w.codes) + e / 2);
  const float absmax = Nf4Absmax(w, dynamic_map, e / kNf4Block);
  Floats<V> values;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const uint32_t code = i % 2 == 0 ? pairs.at[i / 2] >> 4 : pairs.at[i / 2] & 15u;
    values.at[i] = nf4_levels.at[code] * absmax;
  }
  return values;
}

// W'[n, k .. k + 4), 0 from element `count` on.
__device__ inline Floats<4> FourValues(const FrozenWeight& W, int64_t K, int64_t n, int64_t k,
                                       int64_t count) {
  Floats<4> values = {};
  if (W.kind == FrozenKind::kInt8) {
    const int8_t* codes = W.int8.codes + n * W.int8.codes_stride + k;
    const float absmax = count > 0 ? W.int8.absmax[n] : 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < count) values.at[i] = Int8Value(codes[i], absmax);
    }
    return values;
  }
  const int64_t e = n * K + k;
  const auto address = reinterpret_cast<uintptr_t>(W.nf4.codes);
  if (count >= 4 && e % 4 == 0 && address % 2 == 0) return Nf4Values<4>(W.nf4, e);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i < count) values.at[i] = Nf4Value(W.nf4, e + i);
  }
  return values;
}

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_FROZEN_WEIGHT_CUH_
