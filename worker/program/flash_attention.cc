// Read off LibTorch 2.11, aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp:
// mha_varlen_fwd, mha_varlen_bwd. Everything lives until the call returns, so the bytes add up.
#include "worker/program/flash_attention.h"

namespace snug::program {
namespace {

constexpr int64_t kF32 = 4, kB16 = 2;
constexpr int64_t kBlockRows = 128;  // Most queries of a block; dq has room for one per document.

// The random state of dropout that is not there: two tensors of at most 16 bytes.
constexpr int64_t kStateBytes = 2 * kAlignment;

int64_t RoundUp(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

int64_t ForwardBytes(const RunShape& run) {
  const OpAttributes& op = run.op->attributes;
  const int64_t rows = run.key.tokens * op.heads;
  return Aligned(rows * op.head_width * kB16) +  // o
         Aligned(rows * kF32) + kStateBytes;     // lse
}

int64_t BackwardBytes(const RunShape& run) {
  const OpAttributes& op = run.op->attributes;
  const int64_t width = op.head_width, tokens = run.key.tokens;
  const int64_t padded_width = RoundUp(width, width <= 128 ? 32 : 64);
  const int64_t padded_rows = (tokens + kBlockRows * run.key.documents) * op.heads;
  const int64_t all_heads = Aligned(tokens * op.heads * width * kB16);
  // dk and dv of each query head, before they are added up over a group.
  const int64_t expanded = op.heads == op.kv_heads ? 0 : 2 * all_heads;
  return all_heads +                                                    // dq
         2 * Aligned(tokens * op.kv_heads * width * kB16) + expanded +  // dk, dv
         Aligned(padded_rows * kF32) +                                  // delta
         Aligned(padded_rows * padded_width * kF32);                    // dq in fp32
}

}  // namespace

bool FlashServes(const OpAttributes& op, DType compute) {
  return compute == DType::kBF16 && op.softcap == 0.0 && op.dropout == 0.0 && op.causal &&
         op.distances.buckets == 0 && op.head_width % 8 == 0 && op.head_width <= 256;
}

int64_t FlashAttentionBytes(const RunShape& run) {
  return run.direction == Direction::kForward ? ForwardBytes(run) : BackwardBytes(run);
}

}  // namespace snug::program
