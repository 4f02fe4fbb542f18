// Attention on the CPU: checks, forward.
#include "kernels/attention.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/attention_check.h"
#include "kernels/cpu/attention_memory.h"
#include "kernels/cpu/attention_unit.h"
#include "kernels/cpu/loops/loops.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {
namespace {

using cpu::Blocks;
using cpu::ForwardMemory;
using cpu::Unit;

// One unit of forward: key blocks outside, so that each is laid out once; the output of all of the
// unit's queries is summed up as they come (Milakov & Gimelshein 2018).
class ForwardUnit : cpu::UnitWork {
 public:
  ForwardUnit(const AttentionForwardParams& p, const Unit& unit, const Blocks& blocks,
              const ForwardMemory& memory)
      : UnitWork(p.shape, unit, blocks), p_(p), memory_(memory) {}

  void Run() {
    const int64_t rows = unit_.heads * unit_.queries;
    std::fill_n(memory_.out, rows * blocks_.width, 0.0f);
    std::fill_n(memory_.max, rows, -std::numeric_limits<float>::infinity());
    std::fill_n(memory_.sum, rows, 0.0f);
    for (int64_t key = unit_.FirstBlock(); key < unit_.keys; key += blocks_.keys) {
      const int64_t count = std::min(blocks_.keys, unit_.keys - key);
      const Range queries = unit_.SeeingQueries(key, count);
      if (queries.begin >= queries.end) continue;
      LoadKeys(key, count);
      for (int64_t head = 0; head < unit_.heads; ++head) Head(head, key, count, queries);
    }
    Finish();
  }

 private:
  void LoadKeys(int64_t key, int64_t count) const {
    const Place place = {unit_.first_key + key, unit_.kv_head, count};
    Load(p_.k, p_.k_stride, place, TileForm::kColumns, memory_.columns);
    Load(p_.v, p_.v_stride, place, TileForm::kTerms, memory_.values);
  }

  void Head(int64_t head, int64_t key, int64_t count, Range queries) {
    ForEachQueryBlock(queries, [&](int64_t query, int64_t rows) {
      Load(p_.q, p_.q_stride, {unit_.first_row + query, unit_.first_head + head, rows},
           TileForm::kRows, memory_.query);
      for (int64_t row = 0; row < rows; row += kTileRows) {
        Tile({head, query + row, row, std::min(kTileRows, rows - row)}, key, count);
      }
    });
  }

  struct Rows {
    int64_t head, query;
    int64_t first;  // In the query block.
    int64_t count;
  };

  void Tile(const Rows& rows, int64_t key, int64_t keys) {
    const Band band = unit_.BandOf(rows.query, key);
    const cpu::TileColumns columns(band, rows.count, keys);
    if (columns.none()) return;
    const int64_t at = rows.head * unit_.queries + rows.query;
    const int64_t width = blocks_.width, panels = columns.panel_begin;
    const int64_t terms = words_.Covering(s_.D);
    loops_.multiply({.a = memory_.query + rows.first * words_.Words(width),
                     .a_row = words_.Words(width),
                     .a_term = 1,
                     .b = memory_.columns + panels * terms,
                     .b_term = kPanel,
                     .b_panel = kPanel * terms,
                     .c = memory_.scores,
                     .c_row = blocks_.stride,
                     .rows = rows.count,
                     .columns = columns.panel_end - panels,
                     .terms = terms,
                     .pairs = words_.pairs()});
    float* out = memory_.out + at * width;
    loops_.softmax({.scores = memory_.scores,
                    .stride = blocks_.stride,
                    .rows = rows.count,
                    .columns = columns.panel_end - panels,
                    .band = cpu::Shifted(band, panels),
                    .rule = {s_.scale, s_.softcap},
                    .bias = BiasOf(rows.head, {unit_.position(rows.query), key + panels, rows.count,
                                               columns.panel_end - panels}),
                    .bias_step = BiasStep(),
                    .max = memory_.max + at,
                    .sum = memory_.sum + at,
                    .out = out,
                    .out_width = width,
                    .kept = KeptOf({rows.head, rows.query, rows.count, key + panels,
                                    columns.panel_end - panels}),
                    .pairs = words_.pairs()});
    const Range seen = words_.Terms(columns.begin, columns.end);
    loops_.multiply({.a = memory_.scores + seen.begin - words_.Words(panels),
                     .a_row = blocks_.stride,
                     .a_term = 1,
                     .b = memory_.values + seen.begin * width,
                     .b_term = width,
                     .b_panel = kPanel,
                     .c = out,
                     .c_row = width,
                     .rows = rows.count,
                     .columns = width,
                     .terms = seen.end - seen.begin,
                     .accumulate = true,
                     .pairs = words_.pairs()});
  }

  void Finish() {
    const auto keep_factor = static_cast<float>(1.0 / (1.0 - s_.dropout));
    for (int64_t head = 0; head < unit_.heads; ++head) {
      const int64_t at = head * unit_.queries, h = unit_.first_head + head;
      for (int64_t i = 0; i < unit_.queries; ++i) {
        float& sum = memory_.sum[at + i];
        p_.lse[(unit_.first_row + i) * p_.lse_stride + h] = memory_.max[at + i] + std::log(sum);
        sum = keep_factor / sum;
      }
      loops_.store_rows({.x = memory_.out + at * blocks_.width,
                         .padded_width = blocks_.width,
                         .row_factor = memory_.sum + at,
                         .y = static_cast<char*>(p_.o) +
                              Offset(p_.o_stride, unit_.first_row, h) * SizeOf(s_.dtype),
                         .stride = p_.o_stride,
                         .dtype = s_.dtype,
                         .rows = unit_.queries,
                         .width = s_.D});
    }
  }

  const AttentionForwardParams& p_;
  const ForwardMemory& memory_;
};

}  // namespace

Error AttentionForward(const AttentionForwardParams& p, Stream stream) {
  const AttentionShape& s = p.shape;
  cpu::AttentionCheck check(s, stream);
  check.Queries(p.q, "q", p.q_stride, "q_stride")
      .Keys(p.k, "k", p.k_stride, "k_stride")
      .Keys(p.v, "v", p.v_stride, "v_stride")
      .Queries(p.o, "o", p.o_stride, "o_stride")
      .LogSumExp(p.lse, p.lse_stride);
  if (!check.ok()) return check.error();
  if (check.rows() == 0) return {};
  if (stream != nullptr) return cpu::OnStream(cuda::AttentionForward, p, stream);
  const Blocks blocks(SizesOf(s, 1));
  const int64_t each = ForwardMemory(blocks, nullptr).pieces.taken();
  const int64_t threads = p.workspace_bytes / (each * static_cast<int64_t>(sizeof(float)));
  check.Workspace(p.workspace, threads);
  if (!check.ok()) return check.error();
  cpu::ParallelUnits(s.documents * s.kv_heads * blocks.slices, threads,
                     [&](int64_t index, int64_t thread) {
                       const ForwardMemory memory(blocks, p.workspace + thread * each);
                       ForwardUnit(p, Unit(s, blocks, index), blocks, memory).Run();
                     });
  return {};
}

}  // namespace snug::kernels
