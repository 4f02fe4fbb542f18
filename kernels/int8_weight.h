// 8-bit weights of a frozen base, one scale a row (LLM.int8()'s vector-wise quantisation, Dettmers
// et al. 2022), as bitsandbytes stores them (functional.int8_vectorwise_quant without outliers: CB
// and SCB):
//
//   absmax[n] = max_k |w[n,k]|     code = round(w * (127 / absmax[n])), ties to even
//   w' = code * absmax[n] * (1 / 127)
//
// A row of zeros gets codes 0. NaN and infinity are not representable; their codes are unspecified.
#ifndef KERNELS_INT8_WEIGHT_H_
#define KERNELS_INT8_WEIGHT_H_

#include <cstdint>

#include "kernels/types.h"

namespace snug::kernels {

struct Int8Weight {
  int8_t* codes = nullptr;   // (N, K)
  float* absmax = nullptr;   // (N)
  int64_t codes_stride = 0;  // Elements
};

// w -> codes and absmax. The same bytes on the CPU and on CUDA. Once per weight, when it is loaded.
// Traffic: N*K elements (twice where a row is longer than a cache) + N*K + 4*N bytes.
struct QuantizeInt8WeightParams {
  const void* w = nullptr;  // (N, K), dtype
  Int8Weight to;
  int64_t N = 0, K = 0, w_stride = 0;
  DType dtype = DType::kF32;
};
Error QuantizeInt8Weight(const QuantizeInt8WeightParams& p, Stream stream);

// codes -> w', computed in fp32 and rounded once. Traffic: N*K + 4*N bytes + N*K elements.
struct DequantizeInt8WeightParams {
  Int8Weight from;
  void* w = nullptr;  // (N, K), dtype
  int64_t N = 0, K = 0, w_stride = 0;
  DType dtype = DType::kF32;
};
Error DequantizeInt8Weight(const DequantizeInt8WeightParams& p, Stream stream);

// ---- arithmetic of both sides -------------------------------------------------------------------

inline constexpr float kInt8Levels = 127.0f, kInt8Inverse = 1.0f / 127.0f;

// |x| <= 127: adding 1.5 * 2^23 rounds to a whole number, ties to even.
SNUG_HOST_DEVICE static inline int8_t Int8Code(float w, float scale) {
  const float rounded = (w * scale + 12582912.0f) - 12582912.0f;
  return static_cast<int8_t>(rounded);
}
SNUG_HOST_DEVICE static inline float Int8Scale(float absmax) {
  return absmax > 0.0f ? kInt8Levels / absmax : 0.0f;
}
SNUG_HOST_DEVICE static inline float Int8Value(int8_t code, float absmax) {
  return static_cast<float>(code) * absmax * kInt8Inverse;
}

}  // namespace snug::kernels

#endif  // KERNELS_INT8_WEIGHT_H_
