// The gradient of attention's bias on CUDA where documents are grids, without atomics. A block has
// a document and a head and sums the pairs' ds by entry, pair after pair; another kernel adds up
// those of all documents.
#ifndef KERNELS_CUDA_ATTENTION_GRID_GRADIENT_CUH_
#define KERNELS_CUDA_ATTENTION_GRID_GRADIENT_CUH_

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cuda/attention_pair.cuh"
#include "kernels/cuda/attention_place.cuh"
#include "kernels/cuda/attention_plan.cuh"
#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/team.cuh"

namespace snug::kernels::cuda {

// ---- of grids
// ------------------------------------------------------------------------------------

// What the pairs of a tile add to an entry: of each query there is at most one key that is as far
// away, in both directions, as the entry says.
__device__ inline float SumOfEntry(const AttentionBias& bias, const TileBand& band,
                                   const AttentionMemory& memory, int64_t entry) {
  const int distance = static_cast<int>(entry - bias.origin), pitch = static_cast<int>(bias.pitch);
  float sum = 0.0f;
  for (int r = 0; r < band.queries; ++r) {
    const int position = memory.positions[r] - distance;
    const int y = position / pitch, x = position % pitch;
    const int column = y * band.width + x - band.first_key;
    if (position < 0 || x >= band.width || column < 0 || column >= band.end) continue;
    sum += memory.weights[r * kWeightRow + column];
  }
  return sum;
}

// sums (documents, H, B)
__global__ static void __launch_bounds__(kMaxBlock, kFewBlocks)
    GridsKernel(AttentionBackwardParams params, AttentionPlan plan, float* sums) {
  __shared__ AttentionMemory memory;
  const AttentionShape& s = plan.shape;
  const BlockPlace at(s.heads);
  const Document document(s, at.turn);
  float* own = sums + int64_t{blockIdx.x} * s.bias.entries;
  const int first = static_cast<int>(threadIdx.x);
  for (int64_t entry = first; entry < s.bias.entries; entry += kMaxBlock) own[entry] = 0.0f;
  const int query_tiles = (document.queries + kTile - 1) / kTile;
  const int key_tiles = (document.keys + kTile - 1) / kTile;
  for (int pair_index = 0; pair_index < query_tiles * key_tiles; ++pair_index) {
    const PairRows pair(params, plan, document,
                        {pair_index / key_tiles, pair_index % key_tiles, at.head});
    __syncthreads();  // The weights and positions before have been read by all.
    const PairGradient<ScoreGradient::kOfBias, BiasUse::kOfGrids> gradient(params, plan, pair,
                                                                           memory);
    StoreByRow(gradient.ds, memory);
    __syncthreads();
    for (int64_t entry = first; entry < s.bias.entries; entry += kMaxBlock)
      own[entry] += SumOfEntry(s.bias, pair.band, memory, entry);
  }
}

// d_bias += sums: a warp for each entry.
__global__ static void __launch_bounds__(kMaxBlock)
    EntriesKernel(AttentionBackwardParams params, AttentionPlan plan, const float* sums) {
  const AttentionShape& s = plan.shape;
  const int64_t entries = s.bias.entries, all = s.heads * entries;
  const Team<false> warp;
  for (int64_t n = warp.row; n < all; n += warp.rows_apart) {
    float sum = 0.0f;
    for (int64_t d = warp.thread; d < s.documents; d += kWarp) sum += sums[d * all + n];
    sum = WarpSum(sum);
    if (warp.thread == 0) {
      params.d_bias[n / entries * params.d_bias_stride + n % entries * s.bias.entry_stride] += sum;
    }
  }
}

// As AddBiasGradient; `sums`: (documents, H, B).
inline Error AddGridGradient(const AttentionBackwardParams& p, const AttentionPlan& plan,
                             float* sums, Stream stream) {
  const int64_t heads = p.shape.heads;
  const Error error = LaunchTiles(GridsKernel, p.shape.documents * heads, stream, p, plan, sums);
  if (!error.ok()) return error;
  const int64_t warps = Ceil(heads * p.shape.bias.entries, kMaxBlock / kWarp);
  return Launch(EntriesKernel, {warps}, stream, p, plan, static_cast<const float*>(sums));
}

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_GRID_GRADIENT_CUH_
