// Attention's forward on CUDA: a block has 64 queries of a head and goes through the keys that they
// see, 64 at a time, with softmax over what has come so far (Milakov & Gimelshein 2018; Dao et al.
// 2022, alg. 1). Tiles of keys are counted from the document's first key, so that a row's bits
// depend neither on the documents beside it nor on which queries come with it.
#include "kernels/attention.h"

#include <cmath>

#include "kernels/cuda/attention_bias.cuh"
#include "kernels/cuda/attention_place.cuh"
#include "kernels/cuda/attention_plan.cuh"
#include "kernels/cuda/attention_products.cuh"
#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/entries.h"

namespace snug::kernels::cuda {
namespace {

// Of the kSide threads that share a row.
__device__ inline float RowMax(float x) {
#pragma unroll
  for (int lanes = kSide / 2; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, lanes));
  return x;
}
__device__ inline float RowSum(float x) {
#pragma unroll
  for (int lanes = kSide / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(~0u, x, lanes);
  return x;
}

// A row of the block so far: its largest score, and the thread's part of the sum of exponentials
// relative to it.
struct SoftmaxRow {
  float max = -INFINITY;
  float sum = 0.0f;

  // Scores become their exponentials, 0 where `seen` has no bit; returns what sums so far are to be
  // multiplied with. A NaN stays one.
  __device__ float Step(float (&scores)[kEach], unsigned seen) {
    float here = max;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      if ((seen >> j & 1) != 0) here = fmaxf(here, scores[j]);
    }
    here = RowMax(here);
    const float base = here == -INFINITY ? 0.0f : here, factor = expf(max - base);
    max = here;
    sum *= factor;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      scores[j] = (seen >> j & 1) != 0 ? expf(scores[j] - base) : 0.0f;
      sum += scores[j];
    }
    return factor;
  }
};

template <int kGroups, BiasUse kBias>
__global__ void __launch_bounds__(kMaxBlock, BlocksOf(kGroups, kBias))
    ForwardKernel(AttentionForwardParams p, AttentionPlan plan) {
  __shared__ AttentionMemory memory;
  const AttentionShape& s = plan.shape;
  const BlockPlace at(s.heads);
  const int head = at.head, kv_head = plan.KvHeadOf(head);
  const Document document = DocumentAt(s, Division::kQueries, plan.slots - 1 - at.turn);
  const int query = document.tile * kTile;
  const int rows = RowsOfTile(document.tile, document.queries);
  if (rows <= 0) return;
  const RowRange queries = {document.first_query + query, rows, head};
  const HeadRows q = RowsOf(plan, p.q, p.q_stride, queries);
  const int first = Down() * kEach, warp_first = first / kWarpRows * kWarpRows;
  SoftmaxRow softmax[kEach];
  Floats<4> sums[kEach][kGroups] = {};
  const int end = document.EndOfKeyTiles(query, rows);
  for (int tile = document.FirstKeyTile(query); tile < end; ++tile) {
    const RowRange keys = {document.first_key + tile * kTile, RowsOfTile(tile, document.keys),
                           kv_head};
    const TileBand band(document, document.tile, tile);
    StageBias<kBias>(plan, head, band, memory);
    float scores[kEach][kEach];
    Multiply(q, RowsOf(plan, p.k, p.k_stride, keys), memory, scores);
    const unsigned kept = KeptOf(plan, queries, tile);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      unsigned seen = 0;
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        scores[i][j] = Score(plan, scores[i][j]);
        if (!band.Sees(first + i, Across() + j * kSide)) continue;
        seen |= 1u << j;
        scores[i][j] = Biased<kBias>(plan, head, memory, {i, j}, scores[i][j]);
      }
      const float factor = softmax[i].Step(scores[i], seen);
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        memory.weights[(first + i) * kWeightRow + Across() + j * kSide] =
            Kept(plan, kept, i, j, scores[i][j]);
      }
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        sums[i][g] = Each([&](float x) { return x * factor; }, sums[i][g]);
      }
    }
    Accumulate(memory, RowsOf(plan, p.v, p.v_stride, keys), band.SeenBy(warp_first), sums);
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const float sum = RowSum(softmax[i].sum);
    if (first + i >= rows) continue;
    const int64_t row = queries.first + first + i;
    if (Across() == 0) p.lse[row * p.lse_stride + head] = softmax[i].max + logf(sum);
    StoreRow(p.o, row * p.o_stride + head * s.D, q, 1.0f / sum, sums[i]);
  }
}

}  // namespace

Error AttentionForward(const AttentionForwardParams& p, Stream stream) {
  const int64_t bytes = SizeOf(p.shape.dtype);
  const AttentionPlan plan = PlanOf(p.shape, {{p.q, p.q_stride, bytes},
                                              {p.k, p.k_stride, bytes},
                                              {p.v, p.v_stride, bytes},
                                              {p.o, p.o_stride, bytes}});
  return ByShape(p.shape, [&](auto groups, auto bias) {
    return LaunchTiles(ForwardKernel<decltype(groups)::value, decltype(bias)::value>,
                       plan.slots * p.shape.heads, stream, p, plan);
  });
}

}  // namespace snug::kernels::cuda
