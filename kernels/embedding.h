// Token embedding: rows of a table by id, and the gradient of the table.
//
//   forward: y[i] = scale * W[ids[i]]        backward: dW[ids[i]] += scale * dy[i], for i in order
#ifndef KERNELS_EMBEDDING_H_
#define KERNELS_EMBEDDING_H_

#include <cstdint>

#include "kernels/types.h"

namespace snug::kernels {

// Traffic: 2*N*C elements.
struct EmbeddingForwardParams {
  const int32_t* ids = nullptr;  // (N), in [0, V)
  const void* W = nullptr;       // (V, C), dtype
  void* y = nullptr;             // (N, C), dtype
  int64_t N = 0, C = 0, V = 0;
  int64_t W_stride = 0, y_stride = 0;
  DType dtype = DType::kF32;
  float scale = 1.0f;
};
Error EmbeddingForward(const EmbeddingForwardParams& p, Stream stream);

// Adds into dW. Threads divide the columns, so each element of dW takes its terms in the order of
// the rows, whatever the number of threads. Traffic: N*C elements + 8*N*C bytes.
struct EmbeddingBackwardParams {
  const int32_t* ids = nullptr;  // (N), in [0, V)
  const void* dy = nullptr;      // (N, C), dtype
  float* dW = nullptr;           // (V, C), fp32
  int64_t N = 0, C = 0, V = 0;
  int64_t dy_stride = 0, dW_stride = 0;
  DType dtype = DType::kF32;
  float scale = 1.0f;
};
Error EmbeddingBackward(const EmbeddingBackwardParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_EMBEDDING_H_
