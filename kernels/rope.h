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

// The scalings of transformers: "default", "linear", "llama3".
enum class RopeScaling : uint8_t { kDefault, kLinear, kLlama3 };

// Frequencies of one model, on the host: fp32 operations in the order of transformers'
// compute_default_rope_parameters, _compute_linear_scaling_..., _compute_llama3_parameters. The
// power alone is rounded from fp64; torch's own is at times one fp32 unit off that.
struct RopeFrequencyParams {
  float* inv_freq = nullptr;  // (D/2), on the host
  int64_t D = 0;              // Head width, even.
  double theta = 10000.0;     // > 0
  RopeScaling scaling = RopeScaling::kDefault;
  double factor = 1.0;                 // > 0; kLinear, kLlama3
  double low_freq_factor = 1.0;        // > 0; kLlama3
  double high_freq_factor = 4.0;       // > low_freq_factor; kLlama3
  double original_max_position = 0.0;  // > 0; kLlama3: original_max_position_embeddings
};
Error RopeFrequencies(const RopeFrequencyParams& p);

// cos and sin of fp32(position) * inv_freq, the product rounded to fp32 as in transformers.
// Traffic: 8*N*D/2 bytes, and two function values an element: once per batch, not once per layer.
struct RopeTableParams {
  const void* positions = nullptr;  // (N), position_type, >= 0
  IndexType position_type = IndexType::kI32;
  const float* inv_freq = nullptr;  // (D/2)
  float* cos = nullptr;             // (N, D/2), dense
  float* sin = nullptr;             // (N, D/2), dense
  int64_t N = 0, D = 0;
};
Error RopeTable(const RopeTableParams& p, Stream stream);

// Rotates every head of every row; backward rotates the other way. `y` may be `x`.
// Traffic: 2*N*heads*D elements + 4*N*D bytes.
struct RopeParams {
  const void* x = nullptr;     // (N, heads, D), dtype; heads of a row are contiguous
  void* y = nullptr;           // (N, heads, D), dtype
  const float* cos = nullptr;  // (N, D/2), dense
  const float* sin = nullptr;  // (N, D/2), dense
  int64_t N = 0, heads = 0, D = 0;
  int64_t x_stride = 0, y_stride = 0;  // From row to row, >= heads * D.
  DType dtype = DType::kF32;
};
Error RopeForward(const RopeParams& p, Stream stream);   // x = q or k
Error RopeBackward(const RopeParams& p, Stream stream);  // x = dq or dk

}  // namespace snug::kernels

#endif  // KERNELS_ROPE_H_
