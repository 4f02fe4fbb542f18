// What each op takes from its slice of the arena, in closed form. Found by measuring with the
// worker's own allocator (torch 2.11, a CPU with avx512_bf16, 1 to 8 threads);
// tests/worker/execute/workspace_test.cc holds them against it: never less, at most 1.1 times + 64
// KiB. What products need besides operands and results is bounded and part of the context
// (worker/execute/gemm.h).
#include "worker/program/workspace.h"

#include <algorithm>

#include "worker/program/block_layout.h"
#include "worker/program/op_table.h"

namespace snug::program {
namespace {

constexpr int64_t kF32 = 4, kBF16 = 2;

// ---- attention ----------------------------------------------------------------------------------

// Rows of scores that a thread of ATen's flash attention holds at a time.
struct FlashBlock {
  int64_t queries;
  int64_t keys;
};

FlashBlock BlockOf(int64_t length) {
  const int64_t queries = length < 192 ? 32 : length < 768 ? 64 : 256;
  return {std::min(queries, length), std::min<int64_t>(512, length)};
}

int64_t AttentionForward(const RunShape& run, const Machine& machine) {
  const OpAttributes& a = run.op->attributes;
  const int64_t length = run.key.longest_document, threads = machine.threads;
  const FlashBlock block = BlockOf(length);
  const int64_t scores = block.queries * block.keys;
  const int64_t held = scores + 2 * block.queries + block.queries * a.head_width;
  const bool bf16 = run.compute == DType::kBF16;
  return Aligned(length * a.heads * a.head_width * SizeOf(run.compute)) +  // o
         Aligned(length * a.heads * kF32) +                                // lse
         Aligned(threads * held * kF32) + (bf16 ? Aligned(threads * scores * kBF16) : 0);
}

// In fp32, some key heads at a time.
int64_t AttentionBackward(const RunShape& run, const Machine& machine) {
  const OpAttributes& a = run.op->attributes;
  const int64_t length = run.key.longest_document, threads = machine.threads;
  const int64_t key_heads = AttentionKeyHeadsAtOnce(a, threads);
  const int64_t heads = key_heads * (a.heads / a.kv_heads);
  const FlashBlock block = BlockOf(length);
  const int64_t keys = Aligned(length * key_heads * a.head_width * kF32);
  const int64_t queries = Aligned(length * heads * a.head_width * kF32);
  const int64_t scores = Aligned(threads * block.queries * block.keys * kF32);
  const bool bf16 = run.compute == DType::kBF16;
  // dq, dk and dv per query head, and the arriving gradient made dense where its heads are not one
  // stride apart; the scores, their gradients, and a number per query of a block.
  const int64_t copies = (bf16 ? key_heads : a.kv_heads) > 1 ? 4 : 3;
  const int64_t sums = threads * Aligned(block.queries * kF32);  // Each thread takes its own.
  const int64_t flash = copies * queries + 2 * scores + sums;
  return bf16 ? flash + 3 * queries + 2 * keys : flash;
}

// ---- the others ---------------------------------------------------------------------------------

int64_t WidthOf(const RunShape& run, int value) {
  return run.type->values[static_cast<size_t>(value)].width;
}

// Rows in fp32, kConvertRows at a time.
int64_t ConvertedRows(const RunShape& run, int64_t width) {
  return Aligned(std::min(run.key.tokens, kConvertRows) * width * kF32);
}

// A part of a result that is summed in fp32 before it is rounded to the compute type.
int64_t PartBytes(const RunShape& run, int64_t rows, int64_t columns) {
  if (run.compute == DType::kF32) return 0;
  return Aligned(std::min(rows, kPartRows) * std::min(columns, kPartColumns) * kF32);
}

int64_t LinearBytes(const RunShape& run) {
  if (run.direction == Direction::kForward) {
    return PartBytes(run, run.key.tokens, WidthOf(run, run.op->outputs[0]));
  }
  if ((run.wanted.inputs & 1) == 0) return 0;
  return PartBytes(run, run.key.tokens, WidthOf(run, run.op->inputs[0]));
}

int64_t LoraDownBytes(const RunShape& run) {
  const bool plain = run.compute == DType::kF32 && run.op->attributes.dropout == 0.0;
  const int64_t in = WidthOf(run, run.op->inputs[0]), rank = WidthOf(run, run.op->outputs[0]);
  const int64_t stacked = run.op->parameters.size() > 1 ? Aligned(rank * in * kF32) : 0;
  return stacked + (plain ? 0 : ConvertedRows(run, in));
}

// The frozen product is done when the adapter's gradients begin.
int64_t LoraLinearBytes(const RunShape& run) {
  if (run.compute == DType::kF32 || run.direction == Direction::kForward) return LinearBytes(run);
  return std::max(LinearBytes(run), ConvertedRows(run, WidthOf(run, run.op->outputs[0])));
}

int64_t HeadLossBytes(const RunShape& run) {
  const int64_t rows = std::min(run.key.tokens, kHeadChunkRows), element = SizeOf(run.compute);
  const int64_t width = WidthOf(run, run.op->inputs[0]);
  const int64_t chunk = Aligned(rows * width * element) + Aligned(rows * run.vocabulary * element);
  const int64_t forward = PartBytes(run, rows, run.vocabulary);
  if (run.direction == Direction::kForward) return chunk + forward;
  return chunk + std::max(forward, PartBytes(run, rows, width));
}

}  // namespace

int64_t WorkspaceBytes(const RunShape& run, const Machine& machine) {
  switch (run.op->code) {
    case OpCode::kLinear:
      return LinearBytes(run);
    case OpCode::kLoraDown:
      return LoraDownBytes(run);
    case OpCode::kLoraLinear:
      return LoraLinearBytes(run);
    case OpCode::kAttention:
      return run.direction == Direction::kForward ? AttentionForward(run, machine)
                                                  : AttentionBackward(run, machine);
    case OpCode::kHeadLoss:
      return HeadLossBytes(run);
    case OpCode::kEmbedding:
    case OpCode::kNormalize:
    case OpCode::kAffine:
    case OpCode::kRope:
    case OpCode::kGlu:
    case OpCode::kAdd:
      break;
  }
  return 0;
}

}  // namespace snug::program
