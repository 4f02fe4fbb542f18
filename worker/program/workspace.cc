// What each op takes from its slice of the arena, in closed form. Found by measuring with the
// worker's own allocator (torch 2.11, a CPU with avx512_bf16, 1 to 8 threads);
// tests/worker/execute/workspace_test.cc holds them against it: never less, at most 1.1 times + 64
// KiB. What products need besides operands and results is bounded and part of the context
// (worker/execute/gemm.h).
#include "worker/program/workspace.h"

#include <algorithm>
#include <bit>

#include "kernels/attention.h"
#include "kernels/column_sums.h"
#include "kernels/embedding.h"
#include "kernels/frozen_linear.h"
#include "kernels/sampling.h"
#include "worker/program/flash_attention.h"

namespace snug::program {
namespace {

constexpr int64_t kF32 = 4;

// Ranks of a chunk of rows, on a GPU.
int64_t RankBytes(const Machine& machine, int64_t rows) {
  return machine.cpu ? 0 : Aligned(kernels::EmbeddingWorkspace(rows));
}

// ---- attention ----------------------------------------------------------------------------------

// Where attention has windows, each part of one is a document.
int64_t DocumentsOf(const RunShape& run) {
  const PatchOrder& windows = run.op->attributes.order;
  return run.key.documents * (windows.side > 0 ? windows.parts() : 1);
}
int64_t LongestOf(const RunShape& run, Rows rows) {
  const PatchOrder& windows = run.op->attributes.order;
  return windows.side > 0 ? windows.window * windows.window : run.key.LongestOf(rows);
}

// With the biases' gradient, where it is wanted.
kernels::AttentionSizes AttentionSizesOf(const RunShape& run, const Machine& machine) {
  const OpAttributes& a = run.op->attributes;
  const bool windows = a.order.side > 0;
  const int64_t entries = windows ? a.order.entries() : a.distances.entries(a.causal);
  const int64_t queries = run.key.Of(a.query_rows);
  return {.tokens = queries,
          .key_rows = run.key.Of(a.key_rows),
          .documents = DocumentsOf(run),
          .longest_queries = std::min(LongestOf(run, a.query_rows), queries),
          .longest_keys = LongestOf(run, a.key_rows),
          .heads = a.heads,
          .kv_heads = a.kv_heads,
          .D = a.head_width,
          .threads = machine.threads,
          .dtype = run.compute == DType::kF32 ? kernels::DType::kF32 : kernels::DType::kBF16,
          .bias_entries = run.wanted.parameters == 0 ? 0 : entries,
          .causal = a.causal,
          .grids = windows};
}

// worker/execute/ops/distance_biases.h: the table of biases by distance, in fp32 and in the compute
// type, its gradient, and on a GPU the entries' buckets.
int64_t DistanceBiases(const RunShape& run, const Machine& machine) {
  constexpr int64_t kIndex = 4;
  const OpAttributes& a = run.op->attributes;
  const int64_t entries = a.distances.entries(a.causal), elements = entries * a.heads;
  if (entries == 0) return 0;
  const int64_t rounded = run.compute == DType::kF32 ? 0 : Aligned(elements * SizeOf(run.compute));
  const int64_t ids = machine.cpu ? 0 : Aligned(entries * kIndex);
  const int64_t gradient = run.wanted.parameters == 0 ? 0 : Aligned(elements * kF32);
  return Aligned(elements * kF32) + rounded + ids + gradient + RankBytes(machine, entries);
}

// worker/execute/ops/window_documents.h: of a GPU, where the parts of windows begin and how wide
// they are; and the table of biases where it is not fp32.
int64_t WindowBytes(const RunShape& run, const Machine& machine) {
  constexpr int64_t kIndex = 8;
  const OpAttributes& a = run.op->attributes;
  if (a.order.side == 0) return 0;
  const int64_t arrays =
      Aligned((DocumentsOf(run) + 1) * kIndex) + Aligned(DocumentsOf(run) * kIndex);
  const bool single = run.compute == DType::kF32;
  return (machine.cpu ? 0 : arrays) + (single ? 0 : Aligned(a.order.entries() * a.heads * kF32));
}

int64_t ReorderBytes(const RunShape& run, const Machine& machine) {
  constexpr int64_t kIndex = 4;
  return machine.cpu ? 0 : Aligned(run.op->attributes.order.patches() * kIndex);
}

int64_t StreamAttentionBackward(const RunShape& run, const Machine& machine) {
  return Aligned(kernels::AttentionBackwardStreamBytes(AttentionSizesOf(run, machine)));
}

// ---- the others ---------------------------------------------------------------------------------

// Rows in fp32, ConvertRows at a time.
int64_t ConvertedRows(const RunShape& run, const Machine& machine, int64_t width) {
  return Aligned(std::min(run.in_rows(0), ConvertRows(machine)) * width * kF32);
}

// A part of a sum of products that is summed in fp32 before it is rounded to the compute type. A
// GPU rounds a lone product by itself.
int64_t PartBytes(const RunShape& run, const Machine& machine, int64_t rows, int64_t columns) {
  if (run.compute == DType::kF32) return 0;
  return Aligned(std::min(rows, PartRows(machine)) * std::min(columns, PartColumns(machine)) *
                 kF32);
}
int64_t ProductBytes(const RunShape& run, const Machine& machine, int64_t rows, int64_t columns) {
  return machine.cpu ? PartBytes(run, machine, rows, columns) : 0;
}

// On a GPU, of rows of `width` elements, or of vectors that these consist of.
int64_t ColumnSums(const RunShape& run, const Machine& machine, int64_t rows, int64_t width) {
  if (machine.cpu || run.wanted.parameters == 0) return 0;
  return Aligned(kernels::ColumnSumsWorkspace(rows, width));
}

int64_t ColumnSums(const RunShape& run, const Machine& machine, int64_t width) {
  return ColumnSums(run, machine, run.in_rows(0), width);
}

// A product with a quantised weight; one that is added to what is there is made beside it, some
// rows at a time.
struct FrozenSize {
  int64_t rows, columns;
  bool adds;
};
int64_t FrozenBytes(const RunShape& run, const Machine& machine, const FrozenSize& size) {
  if (run.op->attributes.quantization == Quantization::kNone) return 0;
  const int64_t rows = std::min(size.rows, PartRows(machine));
  const int64_t part = size.adds ? Aligned(rows * size.columns * SizeOf(run.compute)) : 0;
  return part + (machine.cpu ? kernels::FrozenLinearWorkspace(machine.threads) : 0);
}
int64_t FrozenBytes(const RunShape& run, const Machine& machine, int64_t columns, bool adds) {
  return FrozenBytes(run, machine, {run.out_rows(0), columns, adds});
}

// Of the gradient of output 0, the rows that a sample of input 0 has, weighted.
int64_t WeightedRows(const RunShape& run) {
  if (run.sampled == 0 || run.direction == Direction::kForward) return 0;
  const Operand rows = {.share = run.sampled};
  return Aligned(rows.RowsOf(run.out_rows(0)) * run.out[0].width * SizeOf(run.out[0].dtype));
}

// Norms of all rows, and what it takes to draw by them.
int64_t SampleBytes(const RunShape& run) {
  const auto kind = run.op->attributes.with_replacement ? kernels::SamplingKind::kWinnerTakeAll
                                                        : kernels::SamplingKind::kSystematic;
  return Aligned(run.in_rows(0) * kF32) +
         Aligned(kernels::SampleRowsWorkspace(run.in_rows(0), kind));
}

int64_t LinearBytes(const RunShape& run, const Machine& machine) {
  const int64_t out = run.out[0].width;
  if (run.direction == Direction::kForward) {
    return std::max(ProductBytes(run, machine, run.out_rows(0), out),
                    FrozenBytes(run, machine, out, run.op->attributes.bias));
  }
  // After the input's gradient, one behind the other.
  const int64_t sums =
      std::max(WeightedRows(run), run.op->attributes.bias ? ColumnSums(run, machine, out) : 0);
  if ((run.wanted.inputs & 1) == 0) return sums;
  const int64_t in = run.in[0].width;
  return std::max({sums, ProductBytes(run, machine, run.out_rows(0), in),
                   FrozenBytes(run, machine, in, /*adds=*/true)});
}

int64_t LoraDownBytes(const RunShape& run, const Machine& machine) {
  const bool plain = run.compute == DType::kF32 && run.op->attributes.dropout == 0.0;
  const int64_t in = run.in[0].width, rank = run.out[0].width;
  const int64_t stacked = run.op->parameters.size() > 1 ? Aligned(rank * in * kF32) : 0;
  return stacked + WeightedRows(run) + (plain ? 0 : ConvertedRows(run, machine, in));
}

// The frozen product is done when the adapter's gradients begin.
int64_t LoraLinearBytes(const RunShape& run, const Machine& machine) {
  const int64_t out = run.out[0].width;
  if (run.direction == Direction::kForward)
    return std::max(PartBytes(run, machine, run.out_rows(0), out),
                    FrozenBytes(run, machine, out, run.op->attributes.bias));
  const int64_t converted = run.compute == DType::kF32 ? 0 : ConvertedRows(run, machine, out);
  return std::max(LinearBytes(run, machine), converted);
}

int64_t HeadLossBytes(const RunShape& run, const Machine& machine) {
  const int64_t rows = run.key.Of(LossRows(*run.op, run.in[0].rows));
  const int64_t width = run.in[0].width, element = SizeOf(run.compute);
  const bool adapted = run.op->attributes.rank > 0;
  const int64_t za = Aligned(rows * run.op->attributes.rank * kF32);
  const int64_t classes = HeadRows(run);
  const int64_t gathered = run.op->attributes.selected ? 0 : Aligned(rows * width * element) + za;
  const int64_t pass = gathered + Aligned(rows * classes * element);
  const int64_t bias = run.op->attributes.bias ? ColumnSums(run, machine, rows, classes) : 0;
  const int64_t product =
      adapted ? PartBytes(run, machine, rows, classes) : ProductBytes(run, machine, rows, classes);
  const int64_t forward =
      std::max(product, FrozenBytes(run, machine, {rows, classes, run.op->attributes.bias}));
  if (run.direction == Direction::kForward) return pass + forward;
  return pass + std::max({bias, za + product, forward, ProductBytes(run, machine, rows, width),
                          FrozenBytes(run, machine, {rows, width, /*adds=*/false})});
}

// A's columns of all tokens.
int64_t LoraEmbeddingBytes(const RunShape& run, const Machine& machine) {
  const int64_t width = run.out[0].width;
  const int64_t za = Aligned(run.out_rows(0) * run.op->attributes.rank * kF32);
  if (run.direction == Direction::kForward) {
    return za + ProductBytes(run, machine, run.out_rows(0), width);
  }
  return za + (run.compute == DType::kF32 ? 0 : ConvertedRows(run, machine, width));
}

int64_t AttentionBytes(const RunShape& run, const Machine& machine) {
  const bool forward = run.direction == Direction::kForward;
  const int64_t biases = DistanceBiases(run, machine) + WindowBytes(run, machine);
  if (machine.cpu) {
    const kernels::AttentionSizes sizes = AttentionSizesOf(run, machine);
    return biases + (forward ? kernels::AttentionForwardBytes(sizes)
                             : kernels::AttentionBackwardBytes(sizes));
  }
  // With a cache, and where ATen has no kernels, it is our own even so.
  const int64_t own = biases + (forward ? 0 : StreamAttentionBackward(run, machine));
  const bool flash = FlashServes(run.op->attributes, run.compute);
  return flash ? std::max(own, FlashAttentionBytes(run)) : own;
}

int64_t EmbeddingBytes(const RunShape& run, const Machine& machine) {
  return run.direction == Direction::kForward ? 0 : RankBytes(machine, run.out_rows(0));
}

int64_t PatchEmbeddingBytes(const RunShape& run, const Machine& machine) {
  const int64_t width = run.out[0].width;
  if (run.direction == Direction::kForward)
    return ProductBytes(run, machine, run.out_rows(0), width);
  return ColumnSums(run, machine, run.out_rows(0), width);
}

}  // namespace

int64_t WorkspaceBytes(const RunShape& run, const Machine& machine) {
  switch (run.op->code) {
    case OpCode::kEmbedding:
      return EmbeddingBytes(run, machine);
    case OpCode::kPatchEmbedding:
      return PatchEmbeddingBytes(run, machine);
    case OpCode::kAffine:
    case OpCode::kRmsNorm:
      return std::popcount(run.wanted.parameters) * ColumnSums(run, machine, run.in[0].width);
    case OpCode::kLinear:
      return LinearBytes(run, machine);
    case OpCode::kLoraDown:
      return LoraDownBytes(run, machine);
    case OpCode::kLoraLinear:
      return LoraLinearBytes(run, machine);
    case OpCode::kAttention:
      return AttentionBytes(run, machine);
    case OpCode::kLoraEmbedding:
      return LoraEmbeddingBytes(run, machine);
    case OpCode::kHeadLoss:
      return HeadLossBytes(run, machine);
    case OpCode::kSampleRows:
      return SampleBytes(run);
    case OpCode::kReorderRows:
      return ReorderBytes(run, machine);
    case OpCode::kNormalize:
    case OpCode::kRope:
    case OpCode::kGlu:
    case OpCode::kActivation:
    case OpCode::kDropout:
    case OpCode::kAdd:
    case OpCode::kSelectRows:
    case OpCode::kMergeRows:
    case OpCode::kMeanRows:
    case OpCode::kQuantize:
    case OpCode::kDequantize:
    case OpCode::kToFixed:
    case OpCode::kFromFixed:
    case OpCode::kFixedAdd:
    case OpCode::kFixedSubtract:
      break;
  }
  return 0;
}

}  // namespace snug::program
