// Where a block of attention works: the document of its slot, and what tiles of queries see of
// tiles of keys. Rows are counted from the document's first.
#ifndef KERNELS_CUDA_ATTENTION_PLACE_CUH_
#define KERNELS_CUDA_ATTENTION_PLACE_CUH_

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cuda/attention_tiles.cuh"

namespace snug::kernels::cuda {

// What slots divide: rows of queries, rows of keys, or the diagonals of which these are rows and
// columns, hence on each side of the middle as many as tiles of keys, and one more.
enum class Division : uint8_t { kQueries, kKeys, kDiagonals };

// The first slot of a document.
__device__ inline int64_t SlotOf(const AttentionShape& s, Division of, int64_t document) {
  const bool queries = of == Division::kQueries || s.key_begins == nullptr;
  const int64_t first = (queries ? s.query_offsets : s.key_begins)[document];
  if (of == Division::kDiagonals) return (s.causal ? 1 : 2) * (first / kTile) + document * 2;
  return first / kTile + document;
}

struct Document {
  int tile = 0;  // The slot's: see DocumentAt.
  int64_t first_query, first_key;
  int queries, keys;  // < kMaxStreamKeys, so that sums of two are no overflow.
  int window;         // 0: none.
  int width = 0;      // Of a grid its columns; else 0.
  bool causal;

  __device__ Document(const AttentionShape& s, int64_t document) {
    first_query = s.query_offsets[document];
    queries = static_cast<int>(s.query_offsets[document + 1] - first_query);
    first_key = s.key_begins == nullptr ? first_query : s.key_begins[document];
    keys = s.key_counts == nullptr ? queries : static_cast<int>(s.key_counts[document]);
    causal = s.causal;
    window = s.window >= keys ? 0 : static_cast<int>(s.window);
    if (s.bias.pitch > 0) width = static_cast<int>(s.bias.widths[document]);
  }
  __device__ int position(int query) const { return keys - queries + query; }

  // Tiles of keys that queries [first, first + rows) see.
  __device__ int FirstKeyTile(int first) const {
    return window == 0 ? 0 : max(0, position(first) + 1 - window) / kTile;
  }
  __device__ int EndOfKeyTiles(int first, int rows) const {
    return (causal ? position(first + rows - 1) : keys - 1) / kTile + 1;
  }
  // Tiles of queries that see any of the keys [first, first + rows).
  __device__ int FirstQueryTile(int first) const {
    return causal ? max(0, first - position(0)) / kTile : 0;
  }
  __device__ int EndOfQueryTiles(int first, int rows) const {
    const int end = window == 0 ? queries : first + rows - 1 + window - position(0);
    return (max(0, min(queries, end)) + kTile - 1) / kTile;
  }
};

// The document of a slot, and the slot's tile: one without rows where the document has a slot too
// many or another begins behind a gap, negative where the slot lies before all documents.
__device__ inline Document DocumentAt(const AttentionShape& s, Division of, int64_t slot) {
  int64_t low = 0, high = s.documents;  // The last document that begins at or before the slot.
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (SlotOf(s, of, middle) <= slot) {
      low = middle;
    } else {
      high = middle;
    }
  }
  Document document(s, low);
  document.tile = static_cast<int>(slot - SlotOf(s, of, low));
  return document;
}

// Rows of a tile of `all`; negative where it is none.
__device__ inline int RowsOfTile(int tile, int all) { return min(all - tile * kTile, kTile); }

// Which keys of a tile the queries of another see: row i those in [i + low, i + high), and none
// from `end` on.
struct TileBand {
  int distance;  // From row 0 to column 0.
  int low, high, end, queries;
  int first_query, first_key, width;  // Of the document's grid, if it is one.

  __device__ TileBand(const Document& document, int query_tile, int key_tile)
      : distance(document.position(0) + (query_tile - key_tile) * kTile),
        high(document.causal ? distance + 1 : 2 * kTile),
        end(document.causal ? kTile : RowsOfTile(key_tile, document.keys)),
        queries(RowsOfTile(query_tile, document.queries)),
        first_query(query_tile * kTile),
        first_key(key_tile * kTile),
        width(document.width) {
    low = document.window == 0 ? -kTile : high - document.window;
  }
  __device__ bool Sees(int query, int key) const {
    return key >= query + low && key < query + high && key < end && query < queries;
  }
  // What the queries, or keys, [first, first + kWarpRows) see, or are seen by.
  __device__ Span SeenBy(int first) const {
    return {max(0, first + low), min(end, min(first + kWarpRows, queries) - 1 + high)};
  }
  __device__ Span Seeing(int first) const {
    return {max(0, first - high + 1), min(queries, first + kWarpRows - low)};
  }
};

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_PLACE_CUH_
