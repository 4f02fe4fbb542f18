// The bias of attention's scores on the CPU. It follows from distances, of which a tile has hardly
// more than it has columns: they lie in a strip, so that no bias or gradient of a pair ever exists.
#ifndef KERNELS_CPU_ATTENTION_BIAS_H_
#define KERNELS_CPU_ATTENTION_BIAS_H_

#include <algorithm>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/loops/tiles.h"

namespace snug::kernels::cpu {

// Entries of a document's distances that differ: those from the last one on count as one.
inline int64_t BiasEntries(const AttentionBias& bias, int64_t keys) {
  return std::min(bias.entries, keys);
}

// The bias' gradient, document by document, so that its bits do not depend on who works on which:
// (heads, row) in fp32. Of a row, document d has BiasEntries elements from min(first key of d,
// d * entries) on: parts do not meet, and there are no more than keys, nor than entries each.
class BiasSums {
 public:
  // Floats of all.
  static int64_t SizeOf(const AttentionSizes& s) { return RoundUp(s.heads * RowOf(s), 16); }

  BiasSums(const AttentionSizes& s, float* base)
      : entries_(s.bias_entries), row_(RowOf(s)), base_(base) {}
  bool wanted() const { return entries_ > 0; }
  float* Of(int64_t head, int64_t document, int64_t first_key) const {
    return base_ + head * row_ + std::min(first_key, document * entries_);
  }
  // In the order of documents.
  void AddTo(float* table, int64_t stride, const AttentionShape& s) const;

 private:
  static int64_t RowOf(const AttentionSizes& s) {
    return std::min(KeyRows(s), s.documents * s.bias_entries);
  }
  int64_t entries_, row_;
  float* base_;
};

inline void BiasSums::AddTo(float* table, int64_t stride, const AttentionShape& s) const {
  for (int64_t head = 0; head < s.heads; ++head) {
    float* row = table + head * stride;
    for (int64_t d = 0; d < s.documents; ++d) {
      const Keys keys = KeysOf(s, d);
      const int64_t entries = BiasEntries(s.bias, keys.count);
      const float* sums = Of(head, d, keys.first);
      for (int64_t b = 0; b < entries; ++b) row[b] += sums[b];
    }
  }
}

// One element per distance, the farthest first: column c of row r is element c - r of first_row().
class BiasStrip {
 public:
  // Scores of a tile: from row 0 to column 0 lie `distance` positions.
  struct Tile {
    int64_t distance, columns;  // At most kKeyBlock columns.
  };

  // Of `entries` elements the last holds for what is farther; columns after a row's own get 0.
  void Read(const float* table, int64_t entries, const Tile& tile) {
    const Parts parts(entries, tile);
    std::fill_n(values_, parts.far, table[entries - 1]);
    for (int64_t s = parts.far; s < parts.near; ++s) values_[s] = table[parts.top - s];
    std::fill(values_ + parts.near, values_ + parts.end, 0.0f);
  }
  void Clear(const Tile& tile) { std::fill_n(values_, Parts(1, tile).end, 0.0f); }
  void AddTo(float* table, int64_t entries, const Tile& tile) const {
    const Parts parts(entries, tile);
    table[entries - 1] += SumOf(parts.far);
    for (int64_t s = parts.far; s < parts.near; ++s) table[parts.top - s] += values_[s];
  }
  float* first_row() { return values_ + kTileRows - 1; }

 private:
  // Elements [0, far) are of the last entry, [far, near) of entry top - s.
  struct Parts {
    int64_t top, end, near, far;
    Parts(int64_t entries, const Tile& tile)
        : top(tile.distance + kTileRows - 1),
          end(tile.columns + kTileRows - 1),
          near(std::clamp<int64_t>(top + 1, 0, end)),
          far(std::clamp<int64_t>(top - entries + 2, 0, near)) {}
  };

  // Of the first n, in chains that do not wait for each other.
  float SumOf(int64_t n) const {
    constexpr int64_t kChains = 16;
    float chains[kChains] = {}, sum = 0.0f;
    for (int64_t s = 0; s < n; s += kChains) {
      const int64_t count = std::min(kChains, n - s);
      for (int64_t i = 0; i < count; ++i) chains[i] += values_[s + i];
    }
    for (float chain : chains) sum += chain;
    return sum;
  }

  alignas(64) float values_[kKeyBlock + kTileRows];
};

}  // namespace snug::kernels::cpu

#endif  // KERNELS_CPU_ATTENTION_BIAS_H_
