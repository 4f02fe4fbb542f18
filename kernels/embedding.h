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

// On CUDA tokens are taken in chunks, and each is ranked by id among the others of its chunk: rows
// of one id lie side by side then, in their order.
inline constexpr int64_t kEmbeddingChunk = 4096;

// Bytes of workspace on CUDA, for any N tokens. Contents: none needed, none left.
inline constexpr int64_t EmbeddingWorkspace(int64_t N) {
  return (N < kEmbeddingChunk ? N : kEmbeddingChunk) * 2 * static_cast<int64_t>(sizeof(int32_t));
}

// Adds into dW. Each element of dW takes its terms in the order of the rows, whatever the number of
// threads: the same bits on the CPU (threads divide the columns) and on CUDA (threads divide ids
// and columns). Traffic: N*C elements + 8*N*C bytes, less where ids repeat; on CUDA 4*N*min(N,
// 4096) bytes of ids as well, out of the cache.
struct EmbeddingBackwardParams {
  const int32_t* ids = nullptr;  // (N), in [0, V)
  const void* dy = nullptr;      // (N, C), dtype
  float* dW = nullptr;           // (V, C), fp32
  int64_t N = 0, C = 0, V = 0;
  int64_t dy_stride = 0, dW_stride = 0;
  DType dtype = DType::kF32;
  float scale = 1.0f;
  void* workspace = nullptr;  // On CUDA: EmbeddingWorkspace(N) bytes, aligned to 8
};
Error EmbeddingBackward(const EmbeddingBackwardParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_EMBEDDING_H_
