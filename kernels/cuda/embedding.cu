// Token embedding on CUDA. Backward takes tokens in chunks: each token counts those before it in
// the order of (id, row), which is its place; then a thread adds up its columns of all rows of one
// id.
#include "kernels/embedding.h"

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/entries.h"
#include "kernels/cuda/pack.cuh"

namespace snug::kernels::cuda {
namespace {

template <typename T, int V>
__global__ void __launch_bounds__(kMaxBlock)
    EmbeddingForwardKernel(EmbeddingForwardParams p, ElementGrid grid) {
  ForElements(grid, [&](int64_t i, int64_t pack) {
    const T* W = static_cast<const T*>(p.W) + p.ids[i] * p.W_stride + pack * V;
    T* y = static_cast<T*>(p.y) + i * p.y_stride + pack * V;
    Store(y, Each([&](float f) { return p.scale * f; }, Load<V>(W)));
  });
}

// A token in the order of (id, row); the row counts from the chunk's first.
struct alignas(8) Token {
  int32_t id, row;
};

// A warp a token: its lanes share the comparisons with the n tokens of the chunk.
__global__ void __launch_bounds__(kMaxBlock)
    RankKernel(const int32_t* ids, int32_t n, Token* tokens) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int row = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / kWarp);
  if (row >= n) return;
  const int32_t id = ids[row];
  int before = 0;
  for (int other = lane; other < n; other += kWarp) {
    before += ids[other] < id || (ids[other] == id && other < row) ? 1 : 0;
  }
#pragma unroll
  for (int bits = kWarp / 2; bits > 0; bits /= 2) before += __shfl_xor_sync(~0u, before, bits);
  if (lane == 0) tokens[before] = {id, row};
}

// Rows that a thread reads ahead of adding them.
constexpr int kAhead = 4;

// dy and N are the chunk's. The first token of an id works for all of them.
template <typename T, int V>
__global__ void __launch_bounds__(kMaxBlock, kFewBlocks)
    EmbeddingBackwardKernel(EmbeddingBackwardParams p, const Token* tokens, ElementGrid grid) {
  ForElements(grid, [&](int64_t place, int64_t pack) {
    const int32_t id = tokens[place].id;
    if (place > 0 && tokens[place - 1].id == id) return;
    float* dW = p.dW + id * p.dW_stride + pack * V;
    const T* dy = static_cast<const T*>(p.dy) + pack * V;
    Floats<V> sum = Load<V>(dW);
    for (int64_t first = place; first < p.N && tokens[first].id == id; first += kAhead) {
      Pack<T, V> read[kAhead] = {};
      int count = 0;
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (first + k >= p.N || tokens[first + k].id != id) break;
        read[k] = LoadPack<V>(dy + tokens[first + k].row * p.dy_stride);
        ++count;
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (k >= count) break;
        sum = Each([&](float w, float g) { return w + p.scale * g; }, sum, Widen(read[k]));
      }
    }
    Store(dW, sum);
  });
}

Error BackwardOfChunk(const EmbeddingBackwardParams& p, Stream stream) {
  auto* tokens = static_cast<Token*>(p.workspace);
  const Error error = Launch(RankKernel, {Ceil(p.N, kMaxBlock / kWarp)}, stream, p.ids,
                             static_cast<int32_t>(p.N), tokens);
  if (!error.ok()) return error;
  return ByPacks(p.dtype, p.C,
                 {{p.dy, p.dy_stride, SizeOf(p.dtype)}, {p.dW, p.dW_stride, sizeof(float)}},
                 [&](auto t, auto v) {
                   constexpr int V = decltype(v)::value;
                   const ElementGrid grid = ElementGridOf(p.N, p.C / V);
                   return Launch(EmbeddingBackwardKernel<decltype(t), V>, {grid.blocks}, stream, p,
                                 tokens, grid);
                 });
}

}  // namespace

Error EmbeddingForward(const EmbeddingForwardParams& p, Stream stream) {
  const int64_t bytes = SizeOf(p.dtype);
  return ByPacks(
      p.dtype, p.C, {{p.W, p.W_stride, bytes}, {p.y, p.y_stride, bytes}}, [&](auto t, auto v) {
        constexpr int V = decltype(v)::value;
        const ElementGrid grid = ElementGridOf(p.N, p.C / V);
        return Launch(EmbeddingForwardKernel<decltype(t), V>, {grid.blocks}, stream, p, grid);
      });
}

Error EmbeddingBackward(const EmbeddingBackwardParams& p, Stream stream) {
  for (int64_t first = 0; first < p.N; first += kEmbeddingChunk) {
    EmbeddingBackwardParams chunk = p;
    chunk.ids = p.ids + first;
    chunk.dy = static_cast<const char*>(p.dy) + first * p.dy_stride * SizeOf(p.dtype);
    chunk.N = p.N - first < kEmbeddingChunk ? p.N - first : kEmbeddingChunk;
    if (const Error error = BackwardOfChunk(chunk, stream); !error.ok()) return error;
  }
  return {};
}

}  // namespace snug::kernels::cuda
