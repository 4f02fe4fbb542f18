// The bias of attention's scores on the CPU: which entries the pairs of a document have, and the
// sums of its gradient. Of a tile: attention_bias_tiles.h.
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

}  // namespace snug::kernels::cpu

#endif  // KERNELS_CPU_ATTENTION_BIAS_H_
