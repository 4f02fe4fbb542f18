// Compaction to the trained tokens on CUDA: one block, a row a thread, place by place from the
// votes of warps.
#include "kernels/valid_tokens.h"

#include "kernels/by_type.h"
#include "kernels/cuda/entries.h"
#include "kernels/cuda/launch.cuh"

namespace snug::kernels::cuda {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / kWarp;

__device__ inline bool IsValid(const ValidTokensParams& p, int64_t i) {
  if (i >= p.N) return false;
  const int64_t label = IndexAt(p.labels, p.label_type, i);
  return label != p.ignore_label && (p.weights == nullptr || p.weights[i] != 0.0f);
}

__global__ void __launch_bounds__(kThreads) ValidTokensKernel(ValidTokensParams p) {
  __shared__ int counts[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  int64_t count = 0;  // Of the tiles before.
  for (int64_t tile = 0; tile < p.N; tile += kThreads) {
    const int64_t i = tile + threadIdx.x;
    const bool valid = IsValid(p, i);
    const unsigned votes = __ballot_sync(~0u, valid);
    __syncthreads();  // The tile before has been counted by all.
    if (lane == 0) counts[warp] = __popc(votes);
    __syncthreads();
    int before = 0, all = 0;
    for (int other = 0; other < kWarps; ++other) {
      before += other < warp ? counts[other] : 0;
      all += counts[other];
    }
    if (valid) p.index[count + before + __popc(votes & ((1u << lane) - 1))] = static_cast<int>(i);
    count += all;
  }
  if (threadIdx.x == 0) *p.count = count;
}

}  // namespace

Error ValidTokens(const ValidTokensParams& p, Stream stream) {
  return Launch(ValidTokensKernel, {1, kThreads}, stream, p);
}

}  // namespace snug::kernels::cuda
