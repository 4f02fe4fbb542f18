// The bias of attention's scores on the CPU. It follows from distances, of which a tile of rows
// that follow one another has hardly more than it has columns: they lie in a strip, so that no bias
// or gradient of a pair ever exists. Of a grid's rows there are more, and a tile has one for each
// pair.
#ifndef KERNELS_CPU_ATTENTION_BIAS_H_
#define KERNELS_CPU_ATTENTION_BIAS_H_

#include <algorithm>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/loops/tiles.h"

namespace snug::kernels::cpu {

// The entries that a document's distances name: `entries` from `first` on, distance 0 being the one
// `origin` behind that. What is farther counts as the last of either side. Of a grid all.
struct BiasSpan {
  int64_t first, entries, origin;
  int64_t keys, pitch, width = 0;  // Of a grid, whose pitch is not 0, its columns.
  BiasSpan(const AttentionShape& s, int64_t document, int64_t keys)
      : keys(keys), pitch(s.bias.pitch) {
    if (pitch > 0) {
      first = 0;
      entries = s.bias.entries;
      origin = s.bias.origin;
      width = s.bias.widths[document];
      return;
    }
    const int64_t behind = s.causal ? 0 : keys - 1;
    first = std::max<int64_t>(0, s.bias.origin - behind);
    entries = std::min(s.bias.entries, s.bias.origin + keys) - first;
    origin = s.bias.origin - first;
  }
};

// The bias' gradient, document by document, so that its bits do not depend on who works on which:
// (heads, row) in fp32. Of a row, document d has its span's elements from min(sides * first key of
// d, d * entries) on: parts do not meet, and there are no more than distances, nor than entries
// each. Of grids it is d * entries, as their spans have all.
class BiasSums {
 public:
  // Floats of all.
  static int64_t SizeOf(const AttentionSizes& s) { return RoundUp(s.heads * RowOf(s), 16); }

  BiasSums(const AttentionSizes& s, float* base)
      : entries_(s.bias_entries), sides_(s.sides()), row_(RowOf(s)), grids_(s.grids), base_(base) {}
  bool wanted() const { return entries_ > 0; }
  float* Of(int64_t head, int64_t document, int64_t first_key) const {
    const int64_t all = document * entries_;
    return base_ + head * row_ + (grids_ ? all : std::min(sides_ * first_key, all));
  }
  // In the order of documents.
  void AddTo(float* table, int64_t stride, const AttentionShape& s) const;

 private:
  static int64_t RowOf(const AttentionSizes& s) {
    const int64_t all = s.documents * s.bias_entries;
    return s.grids ? all : std::min(s.sides() * KeyRows(s), all);
  }
  int64_t entries_, sides_, row_;
  bool grids_;
  float* base_;
};

inline void BiasSums::AddTo(float* table, int64_t stride, const AttentionShape& s) const {
  for (int64_t head = 0; head < s.heads; ++head) {
    for (int64_t d = 0; d < s.documents; ++d) {
      const Keys keys = KeysOf(s, d);
      if (keys.count == 0) continue;
      const BiasSpan span(s, d, keys.count);
      float* row = table + head * stride + span.first * s.bias.entry_stride;
      const float* sums = Of(head, d, keys.first);
      for (int64_t b = 0; b < span.entries; ++b) row[b * s.bias.entry_stride] += sums[b];
    }
  }
}

// Scores of a tile, by the positions of its row 0 and of its column 0 in their document.
struct BiasTile {
  int64_t query, key, rows, columns;  // At most kKeyBlock columns.
};

// One element per distance, the farthest first: column c of row r is element c - r of first_row().
class BiasStrip {
 public:
  using Tile = BiasTile;

  // `table`: from the span's first entry on, `step` from one to the next.
  void Read(const float* table, int64_t step, const BiasSpan& span, const Tile& tile) {
    const Parts parts(span, tile);
    std::fill_n(values_, parts.far, table[(span.entries - 1) * step]);
    for (int64_t s = parts.far; s < parts.near; ++s) values_[s] = table[(parts.top - s) * step];
    std::fill(values_ + parts.near, values_ + parts.end, table[0]);
  }
  void Clear(const Tile& tile) { std::fill_n(values_, EndOf(tile), 0.0f); }
  // Pairs of which a query does not see the key have 0.
  void AddTo(float* table, const BiasSpan& span, const Tile& tile) const {
    const Parts parts(span, tile);
    table[span.entries - 1] += SumOf(values_, parts.far);
    for (int64_t s = parts.far; s < parts.near; ++s) table[parts.top - s] += values_[s];
    table[0] += SumOf(values_ + parts.near, parts.end - parts.near);
  }
  float* first_row() { return values_ + kTileRows - 1; }

 private:
  static int64_t EndOf(const Tile& tile) { return tile.columns + kTileRows - 1; }

  // Elements [0, far) are of the last entry, [far, near) of entry top - s, [near, end) of the
  // first.
  struct Parts {
    int64_t top, end, near, far;
    Parts(const BiasSpan& span, const Tile& tile)
        : top(span.origin + tile.query - tile.key + kTileRows - 1),
          end(EndOf(tile)),
          near(std::clamp<int64_t>(top + 1, 0, end)),
          far(std::clamp<int64_t>(top - span.entries + 2, 0, near)) {}
  };

  // Of n elements, in chains that do not wait for each other.
  static float SumOf(const float* values, int64_t n) {
    constexpr int64_t kChains = 16;
    float chains[kChains] = {}, sum = 0.0f;
    for (int64_t s = 0; s < n; s += kChains) {
      const int64_t count = std::min(kChains, n - s);
      for (int64_t i = 0; i < count; ++i) chains[i] += values[s + i];
    }
    for (float chain : chains) sum += chain;
    return sum;
  }

  alignas(64) float values_[kKeyBlock + kTileRows];
};

// One element per pair of a grid's places: column c of row r is element r * kKeyBlock + c.
class BiasGrid {
 public:
  void Read(const float* table, int64_t step, const BiasSpan& span, const BiasTile& tile) {
    const int64_t columns = Columns(span, tile);
    for (int64_t r = 0; r < tile.rows; ++r) {
      float* row = values_ + r * kKeyBlock;
      const int64_t top = span.origin + PositionOf(span, tile.query + r);
      for (int64_t c = 0; c < columns; ++c) row[c] = table[(top - positions_[c]) * step];
      std::fill(row + columns, row + tile.columns, 0.0f);
    }
  }
  void Clear(const BiasTile& tile) {
    for (int64_t r = 0; r < tile.rows; ++r)
      std::fill_n(values_ + r * kKeyBlock, tile.columns, 0.0f);
  }
  void AddTo(float* table, const BiasSpan& span, const BiasTile& tile) {
    const int64_t columns = Columns(span, tile);
    for (int64_t r = 0; r < tile.rows; ++r) {
      const float* row = values_ + r * kKeyBlock;
      float* top = table + span.origin + PositionOf(span, tile.query + r);
      for (int64_t c = 0; c < columns; ++c) top[-positions_[c]] += row[c];
    }
  }
  float* first_row() { return values_; }

 private:
  static int64_t PositionOf(const BiasSpan& span, int64_t row) {
    return row / span.width * span.pitch + row % span.width;
  }
  // Finds the positions of the tile's columns; how many of these are keys.
  int64_t Columns(const BiasSpan& span, const BiasTile& tile) {
    const int64_t columns = std::min(tile.columns, span.keys - tile.key);
    int64_t x = tile.key % span.width, position = PositionOf(span, tile.key);
    for (int64_t c = 0; c < columns; ++c) {
      positions_[c] = static_cast<int32_t>(position++);
      if (++x < span.width) continue;
      x = 0;
      position += span.pitch - span.width;
    }
    return columns;
  }

  int32_t positions_[kKeyBlock];
  alignas(64) float values_[kTileRows * kKeyBlock];
};

// A tile's bias, or its gradient, as loops read and write it: column c of row r is element r *
// row_step()
// + c of first_row().
class BiasValues {
 public:
  explicit BiasValues(bool grid) : is_grid_(grid) {}
  void Read(const float* table, int64_t step, const BiasSpan& span, const BiasTile& tile) {
    is_grid_ ? grid_.Read(table, step, span, tile) : strip_.Read(table, step, span, tile);
  }
  void Clear(const BiasTile& tile) { is_grid_ ? grid_.Clear(tile) : strip_.Clear(tile); }
  void AddTo(float* table, const BiasSpan& span, const BiasTile& tile) {
    is_grid_ ? grid_.AddTo(table, span, tile) : strip_.AddTo(table, span, tile);
  }
  float* first_row() { return is_grid_ ? grid_.first_row() : strip_.first_row(); }
  int64_t row_step() const { return is_grid_ ? kKeyBlock : -1; }

 private:
  const bool is_grid_;
  BiasStrip strip_;
  BiasGrid grid_;
};

}  // namespace snug::kernels::cpu

#endif  // KERNELS_CPU_ATTENTION_BIAS_H_
