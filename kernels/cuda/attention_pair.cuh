// What attention's backward makes of a tile of queries and a tile of keys: p and ds in registers,
// the same bits in every kernel that needs them.
#ifndef KERNELS_CUDA_ATTENTION_PAIR_CUH_
#define KERNELS_CUDA_ATTENTION_PAIR_CUH_

#include <cmath>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cuda/attention_bias.cuh"
#include "kernels/cuda/attention_place.cuh"
#include "kernels/cuda/attention_plan.cuh"
#include "kernels/cuda/attention_products.cuh"
#include "kernels/cuda/attention_tiles.cuh"

namespace snug::kernels::cuda {

struct TilePair {
  int query_tile, key_tile, head;
};

// The pair's rows of each tensor, and who sees whom.
struct PairRows {
  RowRange queries, keys;
  HeadRows q, dO, k, v;
  TileBand band;
  int key_tile;

  __device__ PairRows(const AttentionBackwardParams& p, const AttentionPlan& plan,
                      const Document& document, const TilePair& pair)
      : band(document, pair.query_tile, pair.key_tile), key_tile(pair.key_tile) {
    queries = {document.first_query + pair.query_tile * kTile, band.queries, pair.head};
    keys = {document.first_key + pair.key_tile * kTile, RowsOfTile(pair.key_tile, document.keys),
            plan.KvHeadOf(pair.head)};
    q = RowsOf(plan, p.q, p.q_stride, queries);
    dO = RowsOf(plan, p.dO, p.dO_stride, queries);
    k = RowsOf(plan, p.k, p.k_stride, keys);
    v = RowsOf(plan, p.v, p.v_stride, keys);
  }
};

// weights[query][key]
__device__ inline void StoreByRow(const float (&x)[kEach][kEach], AttentionMemory& memory) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
#pragma unroll
    for (int j = 0; j < kEach; ++j)
      memory.weights[(Down() * kEach + i) * kWeightRow + Across() + j * kSide] = x[i][j];
  }
}

// Gradients of scores: of products, but for the scale, or of what the bias was added to.
enum class ScoreGradient : uint8_t { kOfProduct, kOfBias };

// p after dropout, and ds, of the thread's scores; 0 where a query does not see. Before it, what
// was staged of the bias has been read by all.
template <ScoreGradient kOf, BiasUse kBias>
struct PairGradient {
  float p[kEach][kEach], ds[kEach][kEach];

  __device__ PairGradient(const AttentionBackwardParams& params, const AttentionPlan& plan,
                          const PairRows& rows, AttentionMemory& memory) {
    StageBias<kBias>(plan, rows.queries.head, rows.band, memory);
    Multiply(rows.q, rows.k, memory, p);
    Multiply(rows.dO, rows.v, memory, ds);
    const unsigned kept = KeptOf(plan, rows.queries, rows.key_tile);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int query = Down() * kEach + i;
      const int64_t row = rows.queries.first + (query < rows.queries.rows ? query : 0);
      const float lse = params.lse[row * params.lse_stride + rows.queries.head];
      const float delta = params.workspace[row * plan.shape.heads + rows.queries.head];
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        if (!rows.band.Sees(query, Across() + j * kSide)) {
          p[i][j] = ds[i][j] = 0.0f;
          continue;
        }
        const float score = Score(plan, p[i][j]);
        const float log_p = Biased<kBias>(plan, rows.queries.head, memory, {i, j}, score) - lse;
        const float e = expf(log_p > 0.0f ? 0.0f : log_p);
        ds[i][j] = e * (Kept(plan, kept, i, j, ds[i][j]) - delta);
        if constexpr (kOf == ScoreGradient::kOfProduct) ds[i][j] *= Slope(plan, score);
        p[i][j] = Kept(plan, kept, i, j, e);
      }
    }
  }
};

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_PAIR_CUH_
