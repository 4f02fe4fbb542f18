// The gradient of attention's bias on CUDA, without atomics. A tile of queries and a tile of keys
// have 127 distances; the pairs of tiles that have the same ones are a diagonal of the document.
// One kernel has a block for each diagonal and head and sums the pairs' ds by distance, pair after
// pair; another adds up, for each entry of the table, the sums of its distances in all documents.
// Of grids: attention_grid_gradient.cuh.
#ifndef KERNELS_CUDA_ATTENTION_BIAS_GRADIENT_CUH_
#define KERNELS_CUDA_ATTENTION_BIAS_GRADIENT_CUH_

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cuda/attention_grid_gradient.cuh"
#include "kernels/cuda/attention_pair.cuh"
#include "kernels/cuda/attention_place.cuh"
#include "kernels/cuda/attention_plan.cuh"
#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/team.cuh"

namespace snug::kernels::cuda {

// Floats from one diagonal's sums to the next, of which kDiagonals are used; and threads that sum
// the rows above, or below, the middle of a tile.
inline constexpr int kDiagonalRow = kMaxBlock / 2;
static_assert(kDiagonalRow > kDiagonals, "A thread has one distance of half a tile.");

// A document's diagonals, from the nearest to the farthest: on diagonal t, row r of a tile of
// queries and column c of one of keys are nearest + t * kTile + r - c apart.
struct Diagonals {
  int before;  // Diagonals on which tiles of keys come after those of queries, by number.
  int count, nearest;
  int least, end;  // Distances of pairs that are seen.

  __device__ explicit Diagonals(const Document& document) {
    const int lead = document.position(0);
    before = document.causal ? (lead + kTile - 1) / kTile : (document.keys - 1) / kTile;
    count = before + (document.queries + kTile - 1) / kTile;
    nearest = lead - before * kTile;
    least = document.causal ? 0 : lead - document.keys + 1;
    end = document.keys;
  }
};

// What the thread adds up of a tile: the rows of its half that are its distance from their column.
__device__ inline float SumOfDiagonal(const AttentionMemory& memory) {
  const int shift = static_cast<int>(threadIdx.x) % kDiagonalRow - (kTile - 1);  // r - c
  const int half = static_cast<int>(threadIdx.x) / kDiagonalRow * (kTile / 2);
  const int begin = max(half, shift), end = min(half + kTile / 2, shift + kTile);
  float sum = 0.0f;
  for (int r = begin; r < end; ++r) sum += memory.weights[r * kWeightRow + r - shift];
  return sum;
}

// sums (diagonal slots, H, kDiagonalRow)
__global__ static void __launch_bounds__(kMaxBlock, kFewBlocks)
    DiagonalsKernel(AttentionBackwardParams params, AttentionPlan plan, float* sums) {
  __shared__ AttentionMemory memory;
  const BlockPlace at(plan.shape.heads);
  const Document document = DocumentAt(plan.shape, Division::kDiagonals, at.turn);
  const Diagonals diagonals(document);
  const int diagonal = document.tile, ahead = diagonal - diagonals.before;
  if (diagonal < 0 || diagonal >= diagonals.count) return;
  const int nearest = diagonals.nearest + diagonal * kTile - (kTile - 1);
  const int keys_end = (document.keys + kTile - 1) / kTile + ahead;
  int end = min((document.queries + kTile - 1) / kTile, keys_end);
  if (document.window != 0 && nearest >= document.window) end = 0;
  float sum = 0.0f;
  for (int query_tile = max(0, ahead); query_tile < end; ++query_tile) {
    const PairRows pair(params, plan, document, {query_tile, query_tile - ahead, at.head});
    const PairGradient<ScoreGradient::kOfBias, BiasUse::kAdded> gradient(params, plan, pair,
                                                                         memory);
    __syncthreads();  // The weights before have been read by all, and so has the bias.
    StoreByRow(gradient.ds, memory);
    __syncthreads();
    sum += SumOfDiagonal(memory);
  }
  __syncthreads();  // The last weights have been read by all.
  memory.weights[threadIdx.x] = sum;
  __syncthreads();
  const int i = static_cast<int>(threadIdx.x);
  if (i >= kDiagonals) return;
  sums[int64_t{blockIdx.x} * kDiagonalRow + i] =
      memory.weights[i] + memory.weights[i + kDiagonalRow];
}

// Of one distance and head in a document: that of one diagonal, or of two that follow each other.
__device__ inline float SumOfDistance(const Diagonals& diagonals, const float* sums, int64_t row,
                                      int distance) {
  const int place = distance - diagonals.nearest + kTile - 1;
  const int diagonal = place / kTile, i = place % kTile;
  float sum = 0.0f;
  if (diagonal < diagonals.count) sum = sums[diagonal * row + i];
  if (diagonal > 0 && i < kTile - 1) sum += sums[(diagonal - 1) * row + i + kTile];
  return sum;
}

// d_bias += sums: a warp for each entry.
__global__ static void __launch_bounds__(kMaxBlock)
    DistancesKernel(AttentionBackwardParams params, AttentionPlan plan, const float* sums) {
  const AttentionShape& s = plan.shape;
  const int64_t entries = s.bias.entries, row = s.heads * kDiagonalRow;
  const Team<false> warp;
  for (int64_t n = warp.row; n < s.heads * entries; n += warp.rows_apart) {
    const int64_t head = n / entries, entry = n % entries;
    float sum = 0.0f;
    for (int64_t d = 0; d < s.documents; ++d) {
      const Document document(s, d);
      const Diagonals diagonals(document);
      const int64_t first = SlotOf(s, Division::kDiagonals, d) * row + head * kDiagonalRow;
      const int64_t least = diagonals.least, own = entry - s.bias.origin;
      const int64_t begin = entry == 0 ? least : max(own, least);
      const int64_t end =
          entry == entries - 1 ? diagonals.end : min(own + 1, int64_t{diagonals.end});
      for (int64_t distance = begin + warp.thread; distance < end; distance += kWarp) {
        sum += SumOfDistance(diagonals, sums + first, row, static_cast<int>(distance));
      }
    }
    sum = WarpSum(sum);
    if (warp.thread == 0) {
      params.d_bias[head * params.d_bias_stride + entry * s.bias.entry_stride] += sum;
    }
  }
}

// ---- both
// ----------------------------------------------------------------------------------------

// Before any gradient is written, as those may lie over what is read. `sums`: for all diagonals, or
// grids.
inline Error AddBiasGradient(const AttentionBackwardParams& p, const AttentionPlan& plan,
                             float* sums, Stream stream) {
  const int64_t heads = p.shape.heads;
  const int64_t warps = Ceil(heads * p.shape.bias.entries, kMaxBlock / kWarp);
  if (p.shape.bias.pitch > 0) return AddGridGradient(p, plan, sums, stream);
  const Error error =
      LaunchTiles(DiagonalsKernel, plan.diagonal_slots * heads, stream, p, plan, sums);
  if (!error.ok()) return error;
  return Launch(DistancesKernel, {warps}, stream, p, plan, static_cast<const float*>(sums));
}

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_BIAS_GRADIENT_CUH_
