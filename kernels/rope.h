// Rotary position embedding (Su et al. 2021), rotate-half convention of Hugging Face Llama: element
// j and j + D/2 of a head form a pair that is turned by the angle position * inv_freq[j].
//
//   y[j]       = x[j] * cos - x[j + D/2] * sin
//   y[j + D/2] = x[j + D/2] * cos + x[j] * sin        backward: the same with -sin
#ifndef KERNELS_ROPE_H_
#define KERNELS_ROPE_H_

#include <cstdint>

#include "kernels/types.h"

namespace snug::kernels {

// scale * cos and scale * sin of fp32(position) * inv_freq, the product rounded to fp32 as in
// transformers, whose attention_factor the scale is.
// Traffic: 8*N*D/2 bytes, and two function values an element: once per batch, not once per layer.
struct RopeTableParams {
  const void* positions = nullptr;  // (N), position_type, >= 0
  IndexType position_type = IndexType::kI32;
  const float* inv_freq = nullptr;  // (D/2)
  float* cos = nullptr;             // (N, D/2), dense
  float* sin = nullptr;             // (N, D/2), dense
  int64_t N = 0, D = 0;
  float scale = 1.0f;
};
Error RopeTable(const RopeTableParams& p, Stream stream);

// Rotates the first R elements of every head of every row (pairs are R/2 apart) and leaves the
// others as they are; backward rotates the other way. `y` may be `x`.
// Traffic: 2*N*heads*D elements + 4*N*D bytes.
struct RopeParams {
  const void* x = nullptr;     // (N, heads, D), dtype; heads of a row are contiguous
  void* y = nullptr;           // (N, heads, D), dtype
  const float* cos = nullptr;  // (N, R/2), dense
  const float* sin = nullptr;  // (N, R/2), dense
  int64_t N = 0, heads = 0, D = 0;
  int64_t R = 0;                       // Even, at most D; 0: D.
  int64_t x_stride = 0, y_stride = 0;  // From row to row, >= heads * D.
  DType dtype = DType::kF32;
};
Error RopeForward(const RopeParams& p, Stream stream);   // x = q or k
Error RopeBackward(const RopeParams& p, Stream stream);  // x = dq or dk

}  // namespace snug::kernels

#endif  // KERNELS_ROPE_H_
