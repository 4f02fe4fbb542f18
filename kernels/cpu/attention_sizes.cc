// What attention takes from its workspace, on the CPU as it lays it out. In a library of its own:
// who predicts links no kernel.
#include <algorithm>

#include "kernels/attention.h"
#include "kernels/cpu/attention_bias.h"
#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/attention_memory.h"

namespace snug::kernels {
namespace {

using cpu::Blocks;
using cpu::ForwardMemory;

int64_t ThreadsOf(const AttentionSizes& s, const Blocks& blocks) {
  return std::min(s.threads, s.documents * s.kv_heads * blocks.slices);
}

}  // namespace

AttentionSizes SizesOf(const AttentionShape& s, int64_t threads) {
  AttentionSizes sizes = {.documents = s.documents,
                          .heads = s.heads,
                          .kv_heads = s.kv_heads,
                          .D = s.D,
                          .threads = threads,
                          .dtype = s.dtype,
                          .causal = s.causal,
                          .grids = s.bias.pitch > 0};
  for (int64_t d = 0; d < s.documents; ++d) {
    const int64_t queries = s.query_offsets[d + 1] - s.query_offsets[d];
    const cpu::Keys keys = cpu::KeysOf(s, d);
    sizes.longest_queries = std::max(sizes.longest_queries, queries);
    sizes.longest_keys = std::max(sizes.longest_keys, keys.count);
    sizes.key_rows = std::max(sizes.key_rows, keys.first + keys.count);
  }
  if (s.documents > 0) sizes.tokens = s.query_offsets[s.documents];
  return sizes;
}

int64_t AttentionForwardBytes(const AttentionSizes& sizes) {
  const Blocks blocks(sizes);
  return ThreadsOf(sizes, blocks) * ForwardMemory(blocks, nullptr).pieces.taken() *
         static_cast<int64_t>(sizeof(float));
}

int64_t AttentionBackwardBytes(const AttentionSizes& sizes) {
  const Blocks blocks(sizes);
  const int64_t each = cpu::BackwardMemory(blocks, false, nullptr).pieces.taken();
  return (cpu::PartialFloats(sizes, blocks) + cpu::BiasSums::SizeOf(sizes) +
          ThreadsOf(sizes, blocks) * each) *
         static_cast<int64_t>(sizeof(float));
}

int64_t AttentionBackwardStreamBytes(const AttentionSizes& sizes) {
  const int64_t dots = sizes.tokens * sizes.heads;
  const int64_t slots = sizes.sides() * (cpu::KeyRows(sizes) / kStreamTile) + 2 * sizes.documents;
  const int64_t grids = cpu::RoundUp(sizes.documents * sizes.heads * sizes.bias_entries, 16);
  const int64_t diagonals = sizes.bias_entries == 0 ? 0 : slots * sizes.heads * 2 * kStreamTile;
  return cpu::RoundUp(dots * static_cast<int64_t>(sizeof(float)), 64) +
         cpu::RoundUp(dots * sizes.D * SizeOf(sizes.dtype), 64) +
         (sizes.grids ? grids : diagonals) * static_cast<int64_t>(sizeof(float));
}

}  // namespace snug::kernels
