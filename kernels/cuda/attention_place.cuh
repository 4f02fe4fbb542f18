// Where a block of attention works: which tile of which document and head, what its queries see,
// and which probabilities dropout keeps.
//
// Rows are divided into slots: document d begins with slot offsets[d] / 64 + d, and so has at least
// one for each tile of its rows. A block finds its document from its number and the offsets alone.
#ifndef KERNELS_CUDA_ATTENTION_PLACE_CUH_
#define KERNELS_CUDA_ATTENTION_PLACE_CUH_

#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "kernels/attention.h"
#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/philox.h"

namespace snug::kernels::cuda {

// What the host works out for kernels. Their arrays are those that they can read.
struct AttentionPlan {
  AttentionShape shape;
  int64_t slots = 0;
  int group = 1;           // Query heads of a key head.
  int64_t key_groups = 0;  // Of 64 keys, in the longest document: what dropout numbers.
  uint32_t threshold = 0;  // Half a random word below this is dropped.
  float kept_factor = 1.0f;
  float to_tanh = 0.0f, from_tanh = 0.0f;  // scale / softcap, 1 / softcap.
  bool wide = false;                       // Of all tensors: HeadRows::wide.

  __device__ int KvHeadOf(int head) const { return head / group; }
};

// The plan for tensors of these strides; `shape` is the host's.
inline AttentionPlan PlanOf(const AttentionShape& shape, std::initializer_list<Operand> tensors) {
  AttentionPlan plan;
  plan.shape = shape;
  plan.shape.query_offsets = shape.device_query_offsets;
  plan.shape.key_begins = shape.device_key_begins;
  plan.shape.key_counts = shape.device_key_counts;
  plan.slots = shape.query_offsets[shape.documents] / kTile + shape.documents;
  plan.group = static_cast<int>(shape.heads / shape.kv_heads);
  plan.key_groups = Ceil(SizesOf(shape, 1).longest_keys, kTile);
  plan.threshold = static_cast<uint32_t>(std::ceil(shape.dropout * 2147483648.0));
  plan.kept_factor = static_cast<float>(1.0 / (1.0 - shape.dropout));
  if (shape.softcap > 0.0f) {
    plan.to_tanh = shape.scale / shape.softcap;
    plan.from_tanh = 1.0f / shape.softcap;
  }
  plan.wide = true;
  for (const Operand& x : tensors) plan.wide = plan.wide && Divides(x, shape.D, 4);
  return plan;
}

// A block for each slot and head.
template <typename Params>
inline Error LaunchTiles(void (*kernel)(Params, AttentionPlan), int64_t heads, Stream stream,
                         const Params& p, const AttentionPlan& plan) {
  const int64_t blocks = plan.slots * heads;
  if (blocks > kMaxBlocks) return {ErrorCode::kBadShape, "query_offsets"};
  return Launch(kernel, {blocks}, stream, p, plan);
}

// body(Constant<kGroups>{}) for heads of up to 64 * kGroups columns.
template <typename Body>
inline Error ByWidth(int64_t D, const Body& body) {
  if (D <= kTile) return body(Constant<1>{});
  if (D <= 2 * kTile) return body(Constant<2>{});
  return body(Constant<4>{});
}

// Late slots first: in a long document they have the most to do.
struct BlockPlace {
  int head;
  int64_t slot;

  __device__ BlockPlace(const AttentionPlan& plan, int64_t heads)
      : head(static_cast<int>(blockIdx.x % static_cast<unsigned>(heads))),
        slot(plan.slots - 1 - blockIdx.x / static_cast<unsigned>(heads)) {}
};

struct Document {
  int tile;  // The slot's; it has no rows where a document has a slot too many.
  int64_t first_query, queries, first_key, keys;
  int64_t window;  // 0: none.

  __device__ Document(const AttentionShape& s, int64_t slot) {
    int64_t low = 0, high = s.documents;  // The last document that begins at or before the slot.
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      if (s.query_offsets[middle] / kTile + middle <= slot) {
        low = middle;
      } else {
        high = middle;
      }
    }
    first_query = s.query_offsets[low];
    tile = static_cast<int>(slot - (first_query / kTile + low));
    queries = s.query_offsets[low + 1] - first_query;
    first_key = s.key_begins == nullptr ? first_query : s.key_begins[low];
    keys = s.key_counts == nullptr ? queries : s.key_counts[low];
    window = s.window >= keys ? 0 : s.window;
  }
  __device__ int64_t position(int64_t query) const { return keys - queries + query; }

  // Rows of a tile; negative where it is none.
  __device__ int Rows(int64_t first, int64_t all) const {
    return static_cast<int>(min(all - first, int64_t{kTile}));
  }
  // Tiles of keys that queries [first, first + rows) see.
  __device__ int FirstKeyTile(int64_t first) const {
    return window == 0 ? 0 : TileOf(position(first) + 1 - window);
  }
  __device__ int EndOfKeyTiles(int64_t first, int rows) const {
    return TileOf(position(first + rows - 1)) + 1;
  }
  // Tiles of queries that see any of the keys [first, first + rows).
  __device__ int FirstQueryTile(int64_t first) const { return TileOf(first - position(0)); }
  __device__ int EndOfQueryTiles(int64_t first, int rows) const {
    const int64_t last = first + rows - 2 + window - position(0);
    return TileOf(window == 0 ? queries - 1 : min(queries - 1, last)) + 1;
  }
  __device__ static int TileOf(int64_t row) {
    return static_cast<int>(max(int64_t{0}, row) / kTile);
  }
};

// Which keys of a tile the queries of another see: row i those in [i + low, i + high).
struct TileBand {
  int low, high, queries;

  __device__ TileBand(const Document& document, int64_t first_query, int64_t first_key)
      : queries(document.Rows(first_query, document.queries)) {
    constexpr int64_t kFar = 2 * kTile;
    const int64_t end = document.position(first_query) - first_key + 1;
    const int64_t begin = document.window == 0 ? -kFar : end - document.window;
    low = static_cast<int>(max(begin, -kFar));
    high = static_cast<int>(min(end, kFar));
  }
  __device__ bool Sees(int query, int key) const {
    return key >= query + low && key < query + high && query < queries;
  }
  // What the queries, or keys, [first, first + kWarpRows) see, or are seen by.
  __device__ Span SeenBy(int first) const {
    return {max(0, first + low), min(kTile, min(first + kWarpRows, queries) - 1 + high)};
  }
  __device__ Span Seeing(int first) const {
    return {max(0, first - high + 1), min(queries, first + kWarpRows - low)};
  }
};

// Bit j: whether the probability of the thread's key across + 16 * j is kept. Of a row of q, a
// head, and a tile of keys.
__device__ inline unsigned KeptOf(const AttentionPlan& plan, int64_t row, int head, int key_tile) {
  if (plan.shape.dropout == 0.0) return ~0u;
  const int64_t group = (row * plan.shape.heads + head) * plan.key_groups + key_tile;
  const Random4 random =
      RandomBlock(plan.shape.site, static_cast<uint64_t>(group * kSide + Across()));
  unsigned kept = 0;
#pragma unroll
  for (int j = 0; j < kEach; ++j) kept |= (random.word[j] / 2 >= plan.threshold ? 1u : 0u) << j;
  return kept;
}

// `rows` rows of a head from row `first` of x on.
__device__ inline HeadRows RowsOf(const AttentionPlan& plan, const void* x, int64_t stride,
                                  int64_t first, int rows, int head) {
  const auto D = static_cast<int>(plan.shape.D);
  return {x, first * stride + head * D, stride, rows, D, plan.shape.dtype, plan.wide};
}

// A score from a product, and what it changes by as the product times scale does.
__device__ inline float Score(const AttentionPlan& plan, float product) {
  if (plan.shape.softcap == 0.0f) return product * plan.shape.scale;
  return tanhf(product * plan.to_tanh) * plan.shape.softcap;
}
__device__ inline float Slope(const AttentionPlan& plan, float score) {
  if (plan.shape.softcap == 0.0f) return 1.0f;
  const float tanh = score * plan.from_tanh;
  return 1.0f - tanh * tanh;
}

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_PLACE_CUH_
