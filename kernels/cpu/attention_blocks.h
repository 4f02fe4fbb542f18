// How attention on the CPU is divided: units that threads take, blocks of queries and keys within a
// unit, tiles of rows within a block.
//
// A unit is some query heads of one key head of one document. It owns its columns of q, o and dq;
// with one slice per key head also those of k, v, dk and dv. Units and their order of sums follow
// from the shape alone, never from the number of threads.
#ifndef KERNELS_CPU_ATTENTION_BLOCKS_H_
#define KERNELS_CPU_ATTENTION_BLOCKS_H_

#include <algorithm>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cpu/loops/loops.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/tiles.h"

namespace snug::kernels::cpu {

// A block of scores (64 KiB) and the keys and values beside it stay in L2; found by measuring.
inline constexpr int64_t kQueryBlock = 64;
inline constexpr int64_t kKeyBlock = 256;
// With fewer key heads than this a group is cut into slices, so that threads find enough units.
inline constexpr int64_t kUnitsWanted = 8;

inline int64_t RoundUp(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Slices of a group: the fewest that divide it and give enough units, or one per head.
inline int64_t SlicesOf(int64_t heads, int64_t kv_heads) {
  const int64_t group = heads / kv_heads;
  for (int64_t slices = 1; slices < group; ++slices) {
    if (group % slices == 0 && slices * kv_heads >= kUnitsWanted) return slices;
  }
  return group;
}

// A document's rows of k and v.
struct Keys {
  int64_t first, count;
};
inline Keys KeysOf(const AttentionShape& s, int64_t document) {
  if (s.key_begins != nullptr) return {s.key_begins[document], s.key_counts[document]};
  const int64_t first = s.query_offsets[document];
  return {first, s.query_offsets[document + 1] - first};
}

// Sizes that a unit's memory follows from.
struct Blocks {
  int64_t slices, heads;  // Of a group; of a unit.
  int64_t width;          // D, rounded up to whole vectors.
  int64_t queries;        // Of the longest document,
  int64_t query_block;    // and those loaded at a time.
  int64_t keys;           // Loaded at a time, whole panels.
  int64_t key_groups;     // Of 64 keys, in the longest document: what dropout numbers.
  int64_t stride;         // Of a row of scores: an odd number of cache lines, so that columns of
                          // a block do not all fall on the same few sets of the cache.
  explicit Blocks(const AttentionSizes& s)
      : slices(SlicesOf(s.heads, s.kv_heads)),
        heads(s.heads / s.kv_heads / slices),
        width(RoundUp(s.D, 16)),
        queries(s.longest_queries),
        query_block(std::min(kQueryBlock, RoundUp(queries, 2))),
        keys(std::min(kKeyBlock, RoundUp(s.longest_keys, kPanel))),
        key_groups((s.longest_keys + 63) / 64),
        stride(keys + 16) {}
};

inline int64_t KeyRows(const AttentionSizes& s) { return std::max(s.tokens, s.key_rows); }

// Sums of dk and of dv that slices make for themselves; none where there is one slice.
inline int64_t PartialFloats(const AttentionSizes& s, const Blocks& blocks) {
  if (blocks.slices == 1) return 0;
  return 2 * RoundUp(blocks.slices * KeyRows(s) * s.kv_heads * s.D, 16);
}

// One unit, and the geometry of its blocks. Queries are counted from the document's first.
struct Unit {
  int64_t first_row = 0, queries = 0;  // T
  int64_t first_key = 0, keys = 0;
  int64_t document = 0, kv_head = 0, first_head = 0, heads = 0, slice = 0;
  int64_t window = 0;
  bool causal = true;

  Unit(const AttentionShape& s, const Blocks& blocks, int64_t index)
      : document(index / blocks.slices / s.kv_heads),
        kv_head(index / blocks.slices % s.kv_heads),
        heads(blocks.heads),
        slice(index % blocks.slices),
        window(s.window),
        causal(s.causal) {
    first_head = (kv_head * blocks.slices + slice) * heads;
    first_row = s.query_offsets[document];
    queries = s.query_offsets[document + 1] - first_row;
    const Keys own = KeysOf(s, document);
    first_key = own.first;
    keys = own.count;
  }
  int64_t position(int64_t query) const { return keys - queries + query; }
  // Where forward's blocks begin: the first key that a query sees, or up to 63 before it, so that
  // what dropout numbers stays whole. Those before are not read.
  int64_t FirstBlock() const {
    const int64_t first = window == 0 ? 0 : std::max<int64_t>(0, position(0) - window + 1);
    return first / 64 * 64;
  }
  // Queries that see any of the keys [first, first + count).
  Range SeeingQueries(int64_t first, int64_t count) const {
    if (!causal) return {0, queries};
    const int64_t lead = keys - queries;
    return {std::max<int64_t>(0, first - lead),
            window == 0 ? queries : std::min(queries, first + count - 1 + window - lead)};
  }
  // What the rows of scores from `query` on see of the keys from `key` on.
  Band BandOf(int64_t query, int64_t key) const {
    constexpr int64_t kAll = Band::kAll;
    if (!causal) return {-kAll, kAll, keys - key};
    const int64_t high = position(query) - key + 1;
    return {window == 0 ? -kAll : high - window, high};
  }
};

// Columns of a block that some row of a tile sees, and the whole vectors around them, from the
// first of a panel on.
struct TileColumns {
  int64_t begin, end, panel_begin, panel_end;
  TileColumns(const Band& band, int64_t rows, int64_t columns)
      : begin(std::max<int64_t>(0, band.low)),
        end(std::min({columns, rows - 1 + band.high, band.end})),
        panel_begin(begin / kPanel * kPanel),
        panel_end(RoundUp(end, 16)) {}
  bool none() const { return begin >= end; }
};

inline Band Shifted(const Band& band, int64_t columns) {
  return {band.low - columns, band.high - columns, band.end - columns};
}

}  // namespace snug::kernels::cpu

#endif  // KERNELS_CPU_ATTENTION_BLOCKS_H_
