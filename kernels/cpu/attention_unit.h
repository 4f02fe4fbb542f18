// What forward and backward of one unit of attention share: the geometry, and how rows of a head
// come into tiles and out of them.
#ifndef KERNELS_CPU_ATTENTION_UNIT_H_
#define KERNELS_CPU_ATTENTION_UNIT_H_

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/attention_bias_tiles.h"
#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/loops/loops.h"

namespace snug::kernels::cpu {

// Operands of products as words: fp32, or pairs of bf16 where the machine multiplies these. The
// forms of a tile take at most as much in pairs as in fp32.
class Operands {
 public:
  Operands(DType dtype, const Loops& loops)
      : pairs_(dtype == DType::kBF16 && loops.multiplies_pairs) {}
  bool pairs() const { return pairs_; }
  // Of an even number of elements.
  int64_t Words(int64_t elements) const { return pairs_ ? elements / 2 : elements; }
  int64_t Covering(int64_t elements) const { return WordsOf(elements, pairs_); }
  // Columns begin .. end of a tile as whole words; what is beyond is 0 in one of the operands.
  Range Terms(int64_t begin, int64_t end) const {
    return pairs_ ? Range{begin / 2, (end + 1) / 2} : Range{begin, end};
  }

 private:
  bool pairs_;
};

class UnitWork {
 protected:
  UnitWork(const AttentionShape& s, const Unit& unit, const Blocks& blocks)
      : s_(s),
        unit_(unit),
        blocks_(blocks),
        loops_(BestLoops()),
        words_(s.dtype, loops_),
        bias_(s.bias.pitch > 0) {}

  // Rows of a tensor (N, heads, D), of one head.
  struct Place {
    int64_t row, head, rows;
  };

  // In elements; rows are `stride` apart.
  int64_t Offset(int64_t stride, int64_t row, int64_t head) const {
    return row * stride + head * s_.D;
  }
  const void* At(const void* x, int64_t stride, int64_t row, int64_t head) const {
    return static_cast<const char*>(x) + Offset(stride, row, head) * SizeOf(s_.dtype);
  }

  void Load(const void* x, int64_t stride, const Place& place, TileForm form, float* to) const {
    loops_.load({.x = At(x, stride, place.row, place.head),
                 .stride = stride,
                 .dtype = s_.dtype,
                 .pairs = words_.pairs(),
                 .form = form,
                 .rows = place.rows,
                 .width = s_.D,
                 .padded_width = blocks_.width,
                 .to = to});
  }

  // body(query, rows) for each block of the unit's queries that holds any of `queries`.
  template <typename Body>
  void ForEachQueryBlock(Range queries, const Body& body) const {
    const int64_t first = queries.begin / blocks_.query_block * blocks_.query_block;
    for (int64_t query = first; query < queries.end; query += blocks_.query_block)
      body(query, std::min(blocks_.query_block, unit_.queries - query));
  }

  // What dropout keeps of a tile: rows from `query` of a head, columns from `key` on. Null masks
  // where there is no dropout. Valid until the next call.
  struct Drop {
    int64_t head, query, rows, key, columns;
  };
  Kept KeptOf(const Drop& drop) const {
    if (s_.dropout == 0.0) return {};
    const int64_t row = (unit_.first_row + drop.query) * s_.heads + unit_.first_head + drop.head;
    loops_.keep({.site = s_.site,
                 .rate = s_.dropout,
                 .first_group = row * blocks_.key_groups,
                 .row_groups = s_.heads * blocks_.key_groups,
                 .column = drop.key,
                 .rows = drop.rows,
                 .columns = drop.columns,
                 .keep = keep_,
                 .stride = kKeyBlock});
    return {keep_, kKeyBlock, static_cast<float>(1.0 / (1.0 - s_.dropout))};
  }

  // The bias of a tile of one of the unit's heads, as loops read it; null without a bias. Valid
  // until the next call.
  const float* BiasOf(int64_t head, const BiasTile& tile) const {
    const AttentionBias& bias = s_.bias;
    if (bias.table == nullptr) return nullptr;
    const BiasSpan span(s_, unit_.document, unit_.keys);
    const float* table = bias.table + (unit_.first_head + head) * bias.stride;
    bias_.Read(table + span.first * bias.entry_stride, bias.entry_stride, span, tile);
    return bias_.first_row();
  }
  int64_t BiasStep() const { return bias_.row_step(); }

  const AttentionShape& s_;
  const Unit& unit_;
  const Blocks& blocks_;
  const Loops& loops_;
  const Operands words_;

 private:
  alignas(64) mutable int32_t keep_[kTileRows * kKeyBlock];
  mutable BiasValues bias_;
};

}  // namespace snug::kernels::cpu

#endif  // KERNELS_CPU_ATTENTION_UNIT_H_
