// What each op may take from its slice of the arena. A first estimate from the
// library's own formulas; the executor's tests hold it against a counting
// allocator.
#include <algorithm>

#include "worker/program/op_table.h"

namespace snug::program {
namespace {

constexpr int64_t kF32 = 4;

// ATen's CPU flash attention: queries are cut in blocks of 32, 64 or 256 by
// length, and each thread holds one block's scores.
int64_t FlashScratch(int64_t length, int64_t head_width, const Machine& machine) {
  const int64_t queries = length < 192 ? 32 : length < 768 ? 64 : 256;
  const int64_t keys = std::min<int64_t>(512, length);
  return machine.threads * queries * (2 * keys + 2 * head_width + 4) * (kF32 + 2);
}

int64_t Attention(const RunShape& run, const Machine& machine) {
  const OpAttributes& a = run.op->attributes;
  const int64_t length = run.key.longest_document;
  const int64_t rows = length * a.heads * a.head_width * SizeOf(run.compute);
  const int64_t scratch = FlashScratch(length, a.head_width, machine);
  if (run.direction == Direction::kForward) return rows + length * a.heads * kF32 + scratch;
  const bool grouped = a.kv_heads != a.heads;
  return (grouped ? 6 : 4) * rows + length * a.heads * kF32 + scratch;
}

int64_t HeadLoss(const RunShape& run) {
  const int64_t chunk = std::min(run.key.tokens, kHeadChunkRows);
  const int64_t width = run.type->values[static_cast<size_t>(run.op->inputs[0])].width;
  const int64_t element = SizeOf(run.compute);
  const int64_t logits = chunk * run.vocabulary * (element == kF32 ? kF32 : kF32 + element);
  return 2 * chunk * width * element + logits + 3 * chunk * kF32 + 512;
}

}  // namespace

int64_t WorkspaceBytes(const RunShape& run, const Machine& machine) {
  switch (run.op->code) {
    case OpCode::kAttention:
      return Attention(run, machine);
    case OpCode::kHeadLoss:
      return HeadLoss(run);
    default:
      return 0;
  }
}

}  // namespace snug::program
