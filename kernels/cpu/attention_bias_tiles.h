// The bias of a tile of attention's scores on the CPU. It follows from distances, of which a tile
// of rows that follow one another has hardly more than it has columns: they lie in a strip, so that
// no bias or gradient of a pair ever exists. Of a grid's rows there are more, and a tile has one
// for each pair.
#ifndef KERNELS_CPU_ATTENTION_BIAS_TILES_H_
#define KERNELS_CPU_ATTENTION_BIAS_TILES_H_

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/attention_bias.h"
#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/loops/tiles.h"

namespace snug::kernels::cpu {

// Scores of a tile, by the positions of its row 0 and of its column 0 in their document.
struct BiasTile {
  int64_t query, key, rows, columns;  // At most kKeyBlock columns.
};

// One element per distance, the farthest first: column c of row r is element c - r of first_row().
class BiasStrip {
 public:
  // `table`: from the span's first entry on, `step` from one to the next.
  void Read(const float* table, int64_t step, const BiasSpan& span, const BiasTile& tile) {
    const Parts parts(span, tile);
    std::fill_n(values_, parts.far, table[(span.entries - 1) * step]);
    for (int64_t s = parts.far; s < parts.near; ++s) values_[s] = table[(parts.top - s) * step];
    std::fill(values_ + parts.near, values_ + parts.end, table[0]);
  }
  void Clear(const BiasTile& tile) { std::fill_n(values_, EndOf(tile), 0.0f); }
  // Pairs of which a query does not see the key have 0.
  void AddTo(float* table, const BiasSpan& span, const BiasTile& tile) const {
    const Parts parts(span, tile);
    table[span.entries - 1] += SumOf(values_, parts.far);
    for (int64_t s = parts.far; s < parts.near; ++s) table[parts.top - s] += values_[s];
    table[0] += SumOf(values_ + parts.near, parts.end - parts.near);
  }
  float* first_row() { return values_ + kTileRows - 1; }

 private:
  static int64_t EndOf(const BiasTile& tile) { return tile.columns + kTileRows - 1; }

  // Elements [0, far) are of the last entry, [far, near) of entry top - s, [near, end) of the
  // first.
  struct Parts {
    int64_t top, end, near, far;
    Parts(const BiasSpan& span, const BiasTile& tile)
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

#endif  // KERNELS_CPU_ATTENTION_BIAS_TILES_H_
