// Attention's backward on the CPU: per unit key blocks outside, queries inside, so that a block's
// dk and dv are complete when its queries are through.
#include <algorithm>

#include "kernels/attention.h"
#include "kernels/cpu/attention_bias.h"
#include "kernels/cpu/attention_bias_tiles.h"
#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/attention_check.h"
#include "kernels/cpu/attention_memory.h"
#include "kernels/cpu/attention_unit.h"
#include "kernels/cpu/loops/loops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/rows.h"

namespace snug::kernels {
namespace {

using cpu::BackwardMemory;
using cpu::BiasSums;
using cpu::BiasTile;
using cpu::BiasValues;
using cpu::Blocks;
using cpu::Unit;

// Where a unit's dk or dv go: to the result, or to the slice's own sum.
struct Target {
  void* y;  // Null: not wanted.
  int64_t stride;
  DType dtype;
};

class BackwardUnit : cpu::UnitWork {
 public:
  BackwardUnit(const AttentionBackwardParams& p, const Unit& unit, const Blocks& blocks,
               const BackwardMemory& memory, const BiasSums& d_bias)
      : UnitWork(p.shape, unit, blocks),
        p_(p),
        memory_(memory),
        d_bias_(d_bias),
        d_values_(p.shape.bias.pitch > 0) {}

  void Run(const Target& dk, const Target& dv) {
    std::fill_n(memory_.dq, unit_.heads * unit_.queries * blocks_.width, 0.0f);
    for (int64_t head = 0; head < unit_.heads; ++head) {
      Delta(head);
      if (d_bias_.wanted()) std::fill_n(BiasSumsOf(head), Span().entries, 0.0f);
    }
    for (int64_t key = 0; key < unit_.keys; key += blocks_.keys) {
      const int64_t count = std::min(blocks_.keys, unit_.keys - key);
      LoadKeys(key, count);
      std::fill_n(memory_.dk, count * blocks_.width, 0.0f);
      std::fill_n(memory_.dv, count * blocks_.width, 0.0f);
      const Range queries = unit_.SeeingQueries(key, count);
      for (int64_t head = 0; head < unit_.heads; ++head) Head(head, key, count, queries);
      Store(memory_.dk, s_.scale, dk, {unit_.first_key + key, unit_.kv_head, count});
      Store(memory_.dv, 1.0f, dv, {unit_.first_key + key, unit_.kv_head, count});
    }
    for (int64_t head = 0; head < unit_.heads; ++head) {
      Store(memory_.dq + head * unit_.queries * blocks_.width, s_.scale,
            {p_.dq, p_.dq_stride, s_.dtype},
            {unit_.first_row, unit_.first_head + head, unit_.queries});
    }
  }

 private:
  // As left and as right operand.
  void LoadQueries(const void* x, int64_t stride, const Place& place, float* rows,
                   float* terms) const {
    Load(x, stride, place, TileForm::kRows, rows);
    if (terms != rows) Load(x, stride, place, TileForm::kTerms, terms);
  }

  void Store(const float* x, float factor, const Target& target, const Place& place) const {
    if (target.y == nullptr) return;
    loops_.store_rows({.x = x,
                       .padded_width = blocks_.width,
                       .factor = factor,
                       .y = static_cast<char*>(target.y) +
                            Offset(target.stride, place.row, place.head) * SizeOf(target.dtype),
                       .stride = target.stride,
                       .dtype = target.dtype,
                       .rows = place.rows,
                       .width = s_.D});
  }

  cpu::BiasSpan Span() const { return {s_, unit_.document, unit_.keys}; }
  float* BiasSumsOf(int64_t head) const {
    return d_bias_.Of(unit_.first_head + head, unit_.document, unit_.first_key);
  }

  void Delta(int64_t head) const {
    const int64_t h = unit_.first_head + head;
    loops_.row_dots({.a = At(p_.dO, p_.dO_stride, unit_.first_row, h),
                     .b = At(p_.o, p_.o_stride, unit_.first_row, h),
                     .a_stride = p_.dO_stride,
                     .b_stride = p_.o_stride,
                     .dtype = s_.dtype,
                     .rows = unit_.queries,
                     .width = s_.D,
                     .delta = memory_.delta + head * unit_.queries});
  }

  void LoadKeys(int64_t key, int64_t count) const {
    const Place place = {unit_.first_key + key, unit_.kv_head, count};
    Load(p_.k, p_.k_stride, place, TileForm::kColumns, memory_.key_columns);
    Load(p_.v, p_.v_stride, place, TileForm::kColumns, memory_.value_columns);
    Load(p_.k, p_.k_stride, place, TileForm::kTerms, memory_.keys);
  }

  void Head(int64_t head, int64_t key, int64_t count, Range queries) const {
    ForEachQueryBlock(queries, [&](int64_t query, int64_t rows) {
      const Place place = {unit_.first_row + query, unit_.first_head + head, rows};
      LoadQueries(p_.q, p_.q_stride, place, memory_.query, memory_.query_terms);
      LoadQueries(p_.dO, p_.dO_stride, place, memory_.dO, memory_.dO_terms);
      for (int64_t row = 0; row < rows; row += kTileRows) {
        QueryTile({row, std::min(kTileRows, rows - row)}, {head, query, key, count});
      }
      const Band band = unit_.BandOf(query, key);
      for (int64_t column = 0; column < count; column += kTileRows) {
        KeyTile({column, std::min(kTileRows, count - column)}, band, rows);
      }
    });
  }

  struct Tile {
    int64_t first, count;
  };
  struct Block {
    int64_t head, query, key, keys;
  };

  // Scores and their gradients of some rows, and what these add to dq.
  void QueryTile(const Tile& rows, const Block& block) const {
    const int64_t row = block.query + rows.first;
    const Band band = unit_.BandOf(row, block.key);
    const cpu::TileColumns columns(band, rows.count, block.keys);
    if (columns.none()) return;
    const int64_t width = blocks_.width, panels = columns.panel_begin;
    const int64_t at = block.head * unit_.queries + row;
    float* scores = memory_.scores + rows.first * blocks_.stride + panels;
    float* dp = memory_.dp + rows.first * blocks_.stride + panels;
    const int64_t terms = words_.Covering(s_.D), left = rows.first * words_.Words(width);
    TileProduct product = {.a = memory_.query + left,
                           .a_row = words_.Words(width),
                           .a_term = 1,
                           .b = memory_.key_columns + panels * terms,
                           .b_term = kPanel,
                           .b_panel = kPanel * terms,
                           .c = scores,
                           .c_row = blocks_.stride,
                           .rows = rows.count,
                           .columns = columns.panel_end - panels,
                           .terms = terms,
                           .pairs = words_.pairs()};
    loops_.multiply(product);
    product.a = memory_.dO + left;
    product.b = memory_.value_columns + panels * terms;
    product.c = dp;
    loops_.multiply(product);
    const BiasTile pairs = {unit_.position(row), block.key + panels, rows.count,
                            columns.panel_end - panels};
    if (d_bias_.wanted()) d_values_.Clear(pairs);
    loops_.gradient(
        {.scores = scores,
         .dp = dp,
         .stride = blocks_.stride,
         .rows = rows.count,
         .columns = columns.panel_end - panels,
         .band = cpu::Shifted(band, panels),
         .rule = {s_.scale, s_.softcap},
         .bias = BiasOf(block.head, pairs),
         .d_bias = d_bias_.wanted() ? d_values_.first_row() : nullptr,
         .bias_step = BiasStep(),
         .lse = p_.lse + (unit_.first_row + row) * p_.lse_stride + unit_.first_head + block.head,
         .lse_stride = p_.lse_stride,
         .delta = memory_.delta + at,
         .ds_rows = memory_.ds_rows,
         .ds_stride = blocks_.stride / 2,
         .kept =
             KeptOf({block.head, row, rows.count, block.key + panels, columns.panel_end - panels}),
         .pairs = words_.pairs()});
    if (d_bias_.wanted()) d_values_.AddTo(BiasSumsOf(block.head), Span(), pairs);
    if (p_.dq == nullptr) return;
    const Range seen = words_.Terms(columns.begin, columns.end);
    loops_.multiply(
        {.a = (words_.pairs() ? memory_.ds_rows : dp) + seen.begin - words_.Words(panels),
         .a_row = words_.Words(blocks_.stride),
         .a_term = 1,
         .b = memory_.keys + seen.begin * width,
         .b_term = width,
         .b_panel = kPanel,
         .c = memory_.dq + at * width,
         .c_row = width,
         .rows = rows.count,
         .columns = width,
         .terms = seen.end - seen.begin,
         .accumulate = true,
         .pairs = words_.pairs()});
  }

  // What the rows of the block add to dk and dv of some keys. Rows that see none of them are left
  // out; all that see one have p and ds at every one of them, tiles being parts of vectors.
  void KeyTile(const Tile& columns, const Band& band, int64_t rows) const {
    const int64_t begin = std::max<int64_t>(0, columns.first - band.high + 1);
    const int64_t end = std::min(rows, columns.first + columns.count - band.low);
    if (begin >= end) return;
    // Words of two rows lie in the place of the first.
    const Range seeing = words_.Terms(begin, end);
    const int64_t width = blocks_.width;
    const int64_t row = words_.pairs() ? 2 * blocks_.stride : blocks_.stride;
    const int64_t corner = seeing.begin * row + columns.first;
    TileProduct product = {.a = memory_.scores + corner,
                           .a_row = 1,
                           .a_term = row,
                           .b = memory_.dO_terms + seeing.begin * width,
                           .b_term = width,
                           .b_panel = kPanel,
                           .c = memory_.dv + columns.first * width,
                           .c_row = width,
                           .rows = columns.count,
                           .columns = width,
                           .terms = seeing.end - seeing.begin,
                           .accumulate = true,
                           .pairs = words_.pairs()};
    if (p_.dv != nullptr) loops_.multiply(product);
    product.a = memory_.dp + corner;
    product.b = memory_.query_terms + seeing.begin * width;
    product.c = memory_.dk + columns.first * width;
    if (p_.dk != nullptr) loops_.multiply(product);
  }

  const AttentionBackwardParams& p_;
  const BackwardMemory& memory_;
  const BiasSums& d_bias_;
  mutable BiasValues d_values_;
};

// (slices, rows of k, Hkv*D) of fp32: the sums of each slice, where there is more than one.
class Partials {
 public:
  Partials(const AttentionShape& s, const Blocks& blocks, int64_t rows, float* base)
      : s_(s), slices_(blocks.slices), rows_(rows), C_(s.kv_heads * s.D), base_(base) {}
  Target Of(int64_t slice) const { return {At(slice, 0), C_, DType::kF32}; }

  // The slices' sum, in their order, of the rows that documents have.
  Error AddUp(const Target& y) const {
    if (s_.key_begins == nullptr) return AddUp(y, {0, rows_});
    Error error;
    for (int64_t d = 0; error.ok() && d < s_.documents; ++d)
      error = AddUp(y, {s_.key_begins[d], s_.key_begins[d] + s_.key_counts[d]});
    return error;
  }

 private:
  float* At(int64_t slice, int64_t row) const { return base_ + (slice * rows_ + row) * C_; }
  Error AddUp(const Target& y, Range rows) const {
    const int64_t N = rows.end - rows.begin;
    float* sum = At(0, rows.begin);
    for (int64_t slice = 1; slice < slices_; ++slice) {
      const Error error = AddRows({.a = sum,
                                   .b = At(slice, rows.begin),
                                   .y = sum,
                                   .N = N,
                                   .C = C_,
                                   .a_stride = C_,
                                   .b_stride = C_,
                                   .y_stride = C_},
                                  nullptr);
      if (!error.ok()) return error;
    }
    return CastRows({.x = sum,
                     .y = static_cast<char*>(y.y) + rows.begin * y.stride * SizeOf(y.dtype),
                     .N = N,
                     .C = C_,
                     .x_stride = C_,
                     .y_stride = y.stride,
                     .y_dtype = y.dtype},
                    nullptr);
  }

  const AttentionShape& s_;
  int64_t slices_, rows_, C_;
  float* base_;
};

}  // namespace

Error AttentionBackward(const AttentionBackwardParams& p, Stream stream) {
  const AttentionShape& s = p.shape;
  cpu::AttentionCheck check(s, stream);
  check.KeysApart()
      .Queries(p.dO, "dO", p.dO_stride, "dO_stride")
      .Queries(p.q, "q", p.q_stride, "q_stride")
      .Keys(p.k, "k", p.k_stride, "k_stride")
      .Keys(p.v, "v", p.v_stride, "v_stride")
      .Queries(p.o, "o", p.o_stride, "o_stride")
      .LogSumExp(p.lse, p.lse_stride);
  if (p.dq != nullptr) check.Queries(p.dq, "dq", p.dq_stride, "dq_stride");
  if (p.dk != nullptr) check.Keys(p.dk, "dk", p.dk_stride, "dk_stride");
  if (p.dv != nullptr) check.Keys(p.dv, "dv", p.dv_stride, "dv_stride");
  if (p.d_bias != nullptr) check.BiasGradient(p.d_bias_stride);
  if (!check.ok()) return check.error();
  if (check.rows() == 0) return {};
  AttentionSizes sizes = SizesOf(s, 1);
  if (p.d_bias != nullptr) sizes.bias_entries = s.bias.entries;
  if (stream != nullptr) {
    check.Workspace(p.workspace, p.workspace_bytes / AttentionBackwardStreamBytes(sizes));
    return check.ok() ? cpu::OnStream(cuda::AttentionBackward, p, stream) : check.error();
  }
  const Blocks blocks(sizes);
  const int64_t each = BackwardMemory(blocks, false, nullptr).pieces.taken();
  const int64_t partials = cpu::PartialFloats(sizes, blocks);
  const int64_t shared = partials + BiasSums::SizeOf(sizes);
  const int64_t floats = p.workspace_bytes / static_cast<int64_t>(sizeof(float));
  const int64_t threads = (floats - shared) / each;
  check.Workspace(p.workspace, threads);
  if (!check.ok()) return check.error();
  const bool pairs = cpu::Operands(s.dtype, BestLoops()).pairs();
  const int64_t key_rows = cpu::KeyRows(sizes);
  const Partials dk(s, blocks, key_rows, p.workspace);
  const Partials dv(s, blocks, key_rows, p.workspace + partials / 2);
  const BiasSums d_bias(sizes, p.workspace + partials);
  const auto target = [&](const Partials& partials, int64_t slice, void* y, int64_t stride) {
    return blocks.slices == 1 || y == nullptr ? Target{y, stride, s.dtype} : partials.Of(slice);
  };
  cpu::ParallelUnits(
      s.documents * s.kv_heads * blocks.slices, threads, [&](int64_t index, int64_t thread) {
        const BackwardMemory memory(blocks, pairs, p.workspace + shared + thread * each);
        const Unit unit(s, blocks, index);
        BackwardUnit(p, unit, blocks, memory, d_bias)
            .Run(target(dk, unit.slice, p.dk, p.dk_stride),
                 target(dv, unit.slice, p.dv, p.dv_stride));
      });
  if (d_bias.wanted()) d_bias.AddTo(p.d_bias, p.d_bias_stride, s);
  if (blocks.slices == 1) return {};
  Error error;
  if (p.dk != nullptr) error = dk.AddUp({p.dk, p.dk_stride, s.dtype});
  if (error.ok() && p.dv != nullptr) error = dv.AddUp({p.dv, p.dv_stride, s.dtype});
  return error;
}

}  // namespace snug::kernels
