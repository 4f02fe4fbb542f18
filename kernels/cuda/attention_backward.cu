// Attention's backward on CUDA, without atomics: one kernel gives dq of 64 queries and goes through
// the keys that they see, another dk and dv of 64 keys and goes through the query heads of their
// group and the queries that see them. Both make p and ds again from q, k, v, dO and lse, by the
// same products in the same order, so that they agree to the bit; so do the kernels that give the
// gradient of a bias (attention_bias_gradient.cuh).
#include <cmath>

#include "kernels/attention.h"
#include "kernels/cuda/attention_bias_gradient.cuh"
#include "kernels/cuda/attention_pair.cuh"
#include "kernels/cuda/attention_place.cuh"
#include "kernels/cuda/attention_plan.cuh"
#include "kernels/cuda/attention_products.cuh"
#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/entries.h"
#include "kernels/cuda/team.cuh"

namespace snug::kernels::cuda {
namespace {

// ---- delta --------------------------------------------------------------------------------------

// delta (N, H) = dO . o, head by head: a warp each.
__global__ void __launch_bounds__(kMaxBlock)
    DeltaKernel(AttentionBackwardParams p, AttentionPlan plan, int64_t dots) {
  const AttentionShape& s = plan.shape;
  const Team<false> warp;
  for (int64_t dot = warp.row; dot < dots; dot += warp.rows_apart) {
    const int64_t row = dot / s.heads, column = dot % s.heads * s.D;
    const int64_t dO = row * p.dO_stride + column, o = row * p.o_stride + column;
    float sum = 0.0f;
    if (plan.wide) {
      for (int64_t c = warp.thread * 4; c < s.D; c += kWarp * 4) {
        const Floats<4> a = LoadAny<4>(p.dO, s.dtype, dO + c), b = LoadAny<4>(p.o, s.dtype, o + c);
#pragma unroll
        for (int i = 0; i < 4; ++i) sum = __fmaf_rn(a.at[i], b.at[i], sum);
      }
    } else {
      for (int64_t c = warp.thread; c < s.D; c += kWarp) {
        sum = __fmaf_rn(LoadAny<1>(p.dO, s.dtype, dO + c).at[0],
                        LoadAny<1>(p.o, s.dtype, o + c).at[0], sum);
      }
    }
    sum = WarpSum(sum);
    if (warp.thread == 0) p.workspace[dot] = sum;
  }
}

// ---- dq -----------------------------------------------------------------------------------------

template <int kGroups, BiasUse kBias>
__global__ void __launch_bounds__(kMaxBlock, BlocksOf(kGroups, kBias))
    QueriesKernel(AttentionBackwardParams params, AttentionPlan plan) {
  __shared__ AttentionMemory memory;
  const AttentionShape& s = plan.shape;
  const BlockPlace at(s.heads);
  const int head = at.head;
  const Document document = DocumentAt(s, Division::kQueries, plan.slots - 1 - at.turn);
  const int query = document.tile * kTile;
  const int rows = RowsOfTile(document.tile, document.queries);
  if (rows <= 0) return;
  const int first = Down() * kEach, warp_first = first / kWarpRows * kWarpRows;
  Floats<4> dq[kEach][kGroups] = {};
  const int end = document.EndOfKeyTiles(query, rows);
  for (int key_tile = document.FirstKeyTile(query); key_tile < end; ++key_tile) {
    const PairRows pair(params, plan, document, {document.tile, key_tile, head});
    const PairGradient<ScoreGradient::kOfProduct, kBias> gradient(params, plan, pair, memory);
    StoreByRow(gradient.ds, memory);
    Accumulate(memory, pair.k, pair.band.SeenBy(warp_first), dq);
  }
  const HeadRows like = RowsOf(plan, params.q, 0, {0, rows, head});
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (first + i >= rows) continue;
    const int64_t row = document.first_query + query + first + i;
    StoreRow(params.dq, row * params.dq_stride + head * s.D, like, s.scale, dq[i]);
  }
}

// ---- dk and dv ----------------------------------------------------------------------------------

// weights[key][query]
__device__ inline void Transpose(const float (&x)[kEach][kEach], AttentionMemory& memory) {
  __syncthreads();  // The weights before have been read by all.
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    Store(memory.weights + (Across() + j * kSide) * kWeightRow + Down() * kEach,
          Floats<4>{{x[0][j], x[1][j], x[2][j], x[3][j]}});
  }
}

template <int kGroups, BiasUse kBias>
__global__ void __launch_bounds__(kMaxBlock, 1)
    KeysKernel(AttentionBackwardParams params, AttentionPlan plan) {
  __shared__ AttentionMemory memory;
  const AttentionShape& s = plan.shape;
  const BlockPlace at(s.kv_heads);
  const int kv_head = at.head, group = plan.group;
  const Document document = DocumentAt(s, Division::kKeys, at.turn);
  const int key = document.tile * kTile;
  const int rows = RowsOfTile(document.tile, document.keys);
  if (document.tile < 0 || rows <= 0) return;
  const int first = Down() * kEach, warp_first = first / kWarpRows * kWarpRows;
  Floats<4> dk[kEach][kGroups] = {}, dv[kEach][kGroups] = {};
  const int begin = document.FirstQueryTile(key), end = document.EndOfQueryTiles(key, rows);
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (int query_tile = begin; query_tile < end; ++query_tile) {
      const PairRows pair(params, plan, document, {query_tile, document.tile, head});
      const PairGradient<ScoreGradient::kOfProduct, kBias> gradient(params, plan, pair, memory);
      if (params.dv != nullptr) {
        Transpose(gradient.p, memory);
        Accumulate(memory, pair.dO, pair.band.Seeing(warp_first), dv);
      }
      if (params.dk != nullptr) {
        Transpose(gradient.ds, memory);
        Accumulate(memory, pair.q, pair.band.Seeing(warp_first), dk);
      }
    }
  }
  const HeadRows like = RowsOf(plan, params.k, 0, {0, rows, kv_head});
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (first + i >= rows) continue;
    const int64_t row = document.first_key + key + first + i, column = int64_t{kv_head} * s.D;
    if (params.dk != nullptr) {
      StoreRow(params.dk, row * params.dk_stride + column, like, s.scale, dk[i]);
    }
    if (params.dv != nullptr) {
      StoreRow(params.dv, row * params.dv_stride + column, like, 1.0f, dv[i]);
    }
  }
}

// ---- dq over q ----------------------------------------------------------------------------------

template <typename T, int V>
__global__ void __launch_bounds__(kMaxBlock)
    CopyKernel(const T* x, T* y, int64_t y_stride, ElementGrid grid) {
  ForElements(grid, [&](int64_t row, int64_t pack) {
    StorePack(y + row * y_stride + pack * V, LoadPack<V>(x + (row * grid.packs + pack) * V));
  });
}

// to.dq = from.dq
Error CopyQueries(const AttentionBackwardParams& from, const AttentionBackwardParams& to,
                  Stream stream) {
  const AttentionShape& s = to.shape;
  const int64_t C = s.heads * s.D, bytes = SizeOf(s.dtype);
  return ByPacks(
      s.dtype, C, {{from.dq, C, bytes}, {to.dq, to.dq_stride, bytes}}, [&](auto t, auto v) {
        using T = decltype(t);
        constexpr int V = decltype(v)::value;
        const ElementGrid grid = ElementGridOf(s.query_offsets[s.documents], C / V);
        return Launch(CopyKernel<T, V>, {grid.blocks}, stream, static_cast<const T*>(from.dq),
                      static_cast<T*>(to.dq), to.dq_stride, grid);
      });
}

AttentionPlan PlanOf(const AttentionBackwardParams& p) {
  const int64_t bytes = SizeOf(p.shape.dtype);
  return cuda::PlanOf(p.shape, {{p.dO, p.dO_stride, bytes},
                                {p.q, p.q_stride, bytes},
                                {p.k, p.k_stride, bytes},
                                {p.v, p.v_stride, bytes},
                                {p.o, p.o_stride, bytes},
                                {p.dq, p.dq_stride, bytes},
                                {p.dk, p.dk_stride, bytes},
                                {p.dv, p.dv_stride, bytes}});
}

// Where the workspace has the bias' sums: behind delta and the room for dq, which is all that there
// is without them.
int64_t BiasOffset(const AttentionShape& s) {
  return AttentionBackwardStreamBytes(SizesOf(s, 1)) / static_cast<int64_t>(sizeof(float));
}

// dq first, as dk and dv may lie over k and v. Over q it cannot lie yet, as dk reads q.
Error Run(const AttentionBackwardParams& p, Stream stream) {
  const AttentionPlan plan = PlanOf(p);
  const AttentionShape& s = p.shape;
  const int64_t dots = s.query_offsets[s.documents] * s.heads;
  Error error = Launch(DeltaKernel, {Ceil(dots, kMaxBlock / kWarp)}, stream, p, plan, dots);
  if (error.ok() && p.d_bias != nullptr) {
    error = AddBiasGradient(p, plan, p.workspace + BiasOffset(s), stream);
  }
  if (error.ok() && p.dq != nullptr) {
    error = ByShape(s, [&](auto groups, auto bias) {
      return LaunchTiles(QueriesKernel<decltype(groups)::value, decltype(bias)::value>,
                         plan.slots * s.heads, stream, p, plan);
    });
  }
  if (!error.ok() || (p.dk == nullptr && p.dv == nullptr)) return error;
  return ByShape(s, [&](auto groups, auto bias) {
    return LaunchTiles(KeysKernel<decltype(groups)::value, decltype(bias)::value>,
                       plan.key_slots * s.kv_heads, stream, p, plan);
  });
}

}  // namespace

Error AttentionBackward(const AttentionBackwardParams& p, Stream stream) {
  if (p.dq == nullptr || p.dq != p.q) return Run(p, stream);
  const AttentionShape& s = p.shape;
  AttentionBackwardParams apart = p;
  apart.dq = p.workspace + Ceil(s.query_offsets[s.documents] * s.heads, 16) * 16;
  apart.dq_stride = s.heads * s.D;
  const Error error = Run(apart, stream);
  return error.ok() ? CopyQueries(apart, p, stream) : error;
}

}  // namespace snug::kernels::cuda
