// Where a block of attention works: the document of its slot, and what tiles of queries see of
// tiles of keys. Rows are counted from the document's first.
#ifndef KERNELS_CUDA_ATTENTION_PLACE_CUH_
#define KERNELS_CUDA_ATTENTION_PLACE_CUH_

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cuda/attention_tiles.cuh"

namespace snug::kernels::cuda {

struct Document {
  int tile;  // The slot's; it has no rows where a document has a slot too many.
  int64_t first_query, first_key;
  int queries, keys;  // < kMaxStreamKeys, so that sums of two are no overflow.
  int window;         // 0: none.

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
    queries = static_cast<int>(s.query_offsets[low + 1] - first_query);
    first_key = s.key_begins == nullptr ? first_query : s.key_begins[low];
    keys = s.key_counts == nullptr ? queries : static_cast<int>(s.key_counts[low]);
    window = s.window >= keys ? 0 : static_cast<int>(s.window);
  }
  __device__ int position(int query) const { return keys - queries + query; }

  // Tiles of keys that queries [first, first + rows) see.
  __device__ int FirstKeyTile(int first) const {
    return window == 0 ? 0 : max(0, position(first) + 1 - window) / kTile;
  }
  __device__ int EndOfKeyTiles(int first, int rows) const {
    return position(first + rows - 1) / kTile + 1;
  }
  // Tiles of queries that see any of the keys [first, first + rows).
  __device__ int FirstQueryTile(int first) const { return max(0, first - position(0)) / kTile; }
  __device__ int EndOfQueryTiles(int first, int rows) const {
    const int last = window == 0 ? queries - 1 : first + rows - 2 + window - position(0);
    return min(queries - 1, last) / kTile + 1;
  }
};

// Rows of a tile of `all`; negative where it is none.
__device__ inline int RowsOfTile(int tile, int all) { return min(all - tile * kTile, kTile); }

// Which keys of a tile the queries of another see: row i those in [i + low, i + high).
struct TileBand {
  int low, high, queries;

  __device__ TileBand(const Document& document, int query_tile, int key_tile)
      : high(document.position(0) + (query_tile - key_tile) * kTile + 1),
        queries(RowsOfTile(query_tile, document.queries)) {
    low = document.window == 0 ? -kTile : high - document.window;
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

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_PLACE_CUH_
