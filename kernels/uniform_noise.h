// Uniform noise, a function of what it is for: never stored, the same whenever it is drawn again.
//
//   x[i,c] += magnitude * (2 u(i,c) - 1)      u(i,c) in [0, 1): word c % 4 of Philox block
//                                             (first_row + i) * ceil(C / 4) + c / 4
#ifndef KERNELS_UNIFORM_NOISE_H_
#define KERNELS_UNIFORM_NOISE_H_

#include <cstdint>

#include "kernels/philox.h"
#include "kernels/types.h"

namespace snug::kernels {

// bf16 is added to in fp32 and rounded once. Traffic: 2*N*C elements.
struct UniformNoiseParams {
  void* x = nullptr;  // (N, C), dtype
  int64_t N = 0, C = 0;
  int64_t x_stride = 0;
  int64_t first_row = 0;  // Of the micro-batch: where this call's rows begin in it.
  DType dtype = DType::kF32;
  float magnitude = 0.0f;  // Finite, not negative.
  RandomSite site;
};
Error AddUniformNoise(const UniformNoiseParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_UNIFORM_NOISE_H_
