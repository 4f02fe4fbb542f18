// Stands in for the toolkit's header in the emulation: conversions of fp16, with a GPU's NaN.
#ifndef TESTS_CUDA_ON_CPU_INCLUDE_CUDA_FP16_H_
#define TESTS_CUDA_ON_CPU_INCLUDE_CUDA_FP16_H_

#include "kernels/types.h"
#include "tests/cuda_on_cpu/language.h"

struct __half {
  unsigned short bits;
};
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline float __half2float(__half x) { return snug::kernels::ToFloat(snug::kernels::f16{x.bits}); }
inline __half __float2half_rn(float x) {
  return {x != x ? static_cast<unsigned short>(0x7fff) : snug::kernels::ToF16(x).bits};
}

#endif  // TESTS_CUDA_ON_CPU_INCLUDE_CUDA_FP16_H_
