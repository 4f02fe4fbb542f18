// What attention's kernels get from the host, the blocks that they are launched as, and what
// follows from the plan alone: rows of tensors, which probabilities dropout keeps, scores.
//
// Rows are divided into slots: document d begins with slot first_row / 64 + d, and so has at least
// one for each tile of its rows. A block finds its document from its number and the offsets alone.
#ifndef KERNELS_CUDA_ATTENTION_PLAN_CUH_
#define KERNELS_CUDA_ATTENTION_PLAN_CUH_

#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "kernels/attention.h"
#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/philox.h"

namespace snug::kernels::cuda {

// What the host works out for kernels. Their arrays are those that they can read.
struct AttentionPlan {
  AttentionShape shape;
  int64_t slots = 0, key_slots = 0, diagonal_slots = 0;  // Of each Division.
  int group = 1;                                         // Query heads of a key head.
  int64_t key_groups = 0;  // Of 64 keys, in the longest document: what dropout numbers.
  uint32_t threshold = 0;  // Half a random word below this is dropped.
  float kept_factor = 1.0f;
  float to_tanh = 0.0f, from_tanh = 0.0f;  // scale / softcap, 1 / softcap.
  bool wide = false;                       // Of all tensors: HeadRows::wide.

  __device__ int KvHeadOf(int head) const { return head / group; }
};

// The plan for tensors of these strides; `shape` is the host's.
inline AttentionPlan PlanOf(const AttentionShape& shape, std::initializer_list<Operand> tensors) {
  AttentionPlan plan;
  plan.shape = shape;
  plan.shape.query_offsets = shape.device_query_offsets;
  plan.shape.key_begins = shape.device_key_begins;
  plan.shape.key_counts = shape.device_key_counts;
  plan.shape.bias.widths = shape.bias.device_widths;
  const AttentionSizes sizes = SizesOf(shape, 1);
  plan.slots = sizes.tokens / kTile + shape.documents;
  plan.key_slots = sizes.key_rows / kTile + shape.documents;
  plan.diagonal_slots = sizes.sides() * (sizes.key_rows / kTile) + 2 * shape.documents;
  plan.group = static_cast<int>(shape.heads / shape.kv_heads);
  plan.key_groups = Ceil(sizes.longest_keys, kTile);
  plan.threshold = static_cast<uint32_t>(std::ceil(shape.dropout * 2147483648.0));
  plan.kept_factor = static_cast<float>(1.0 / (1.0 - shape.dropout));
  if (shape.softcap > 0.0f) {
    plan.to_tanh = shape.scale / shape.softcap;
    plan.from_tanh = 1.0f / shape.softcap;
  }
  plan.wide = true;
  for (const Operand& x : tensors) plan.wide = plan.wide && Divides(x, shape.D, 4);
  return plan;
}

// A block for each slot and head.
template <typename... Parameters, typename... Arguments>
inline Error LaunchTiles(void (*kernel)(Parameters...), int64_t blocks, Stream stream,
                         const Arguments&... arguments) {
  if (blocks > kMaxBlocks) return {ErrorCode::kBadShape, "query_offsets"};
  return Launch(kernel, {blocks}, stream, arguments...);
}

// body(Constant<kGroups>{}) for heads of up to 64 * kGroups columns.
template <typename Body>
inline Error ByWidth(int64_t D, const Body& body) {
  if (D <= kTile) return body(Constant<1>{});
  if (D <= 2 * kTile) return body(Constant<2>{});
  return body(Constant<4>{});
}

// A block's head and the slot of its turn. The slots with the most to do come first: of queries the
// last, of keys the first of a long document.
struct BlockPlace {
  int head;
  int64_t turn;

  __device__ explicit BlockPlace(int64_t heads)
      : head(static_cast<int>(blockIdx.x % static_cast<unsigned>(heads))),
        turn(blockIdx.x / static_cast<unsigned>(heads)) {}
};

// Rows of one head of a tensor.
struct RowRange {
  int64_t first;
  int rows, head;
};
__device__ inline HeadRows RowsOf(const AttentionPlan& plan, const void* x, int64_t stride,
                                  const RowRange& range) {
  const auto D = static_cast<int>(plan.shape.D);
  return {x,        range.first * stride + int64_t{range.head} * D,
          stride,   range.rows,
          D,        plan.shape.dtype,
          plan.wide};
}

// Bit 4 * i + j: whether dropout keeps the probability that is the thread's [i][j], of some queries
// and a tile of keys.
__device__ inline unsigned KeptOf(const AttentionPlan& plan, const RowRange& queries,
                                  int key_tile) {
  if (plan.shape.dropout == 0.0) return ~0u;
  unsigned kept = 0;
#pragma unroll 1
  for (int i = 0; i < kEach; ++i) {
    const int64_t row = (queries.first + Down() * kEach + i) * plan.shape.heads + queries.head;
    const int64_t block = (row * plan.key_groups + key_tile) * kSide + Across();
    const Random4 random = RandomBlock(plan.shape.site, static_cast<uint64_t>(block));
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      if (random.word[j] / 2 >= plan.threshold) kept |= 1u << (kEach * i + j);
    }
  }
  return kept;
}
__device__ inline float Kept(const AttentionPlan& plan, unsigned kept, int i, int j, float x) {
  return (kept >> (kEach * i + j) & 1) != 0 ? x * plan.kept_factor : 0.0f;
}

// A score from a product, and what it changes by as the product times scale does.
__device__ inline float Score(const AttentionPlan& plan, float product) {
  if (plan.shape.softcap == 0.0f) return product * plan.shape.scale;
  return tanhf(product * plan.to_tanh) * plan.shape.softcap;
}
__device__ inline float Slope(const AttentionPlan& plan, float score) {
  if (plan.shape.softcap == 0.0f) return 1.0f;
  const float tanh = score * plan.from_tanh;
  return 1.0f - tanh * tanh;
}

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_PLAN_CUH_
