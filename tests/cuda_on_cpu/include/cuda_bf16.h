// Stands in for the toolkit's header in the emulation: conversions of bfloat16, with a GPU's NaN.
#ifndef TESTS_CUDA_ON_CPU_INCLUDE_CUDA_BF16_H_
#define TESTS_CUDA_ON_CPU_INCLUDE_CUDA_BF16_H_

#include "kernels/types.h"
#include "tests/cuda_on_cpu/language.h"

struct __nv_bfloat16 {
  unsigned short bits;
};
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  return {x != x ? static_cast<unsigned short>(0x7fff) : snug::kernels::ToBf16(x).bits};
}

#endif  // TESTS_CUDA_ON_CPU_INCLUDE_CUDA_BF16_H_
