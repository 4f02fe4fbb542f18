// The bias of a tile of scores: it follows from distances, of which a tile has 127, or of a grid's
// places, of which it has 128. And the kernels with it and without it.
#ifndef KERNELS_CUDA_ATTENTION_BIAS_CUH_
#define KERNELS_CUDA_ATTENTION_BIAS_CUH_

#include <cstdint>

#include "kernels/cuda/attention_place.cuh"
#include "kernels/cuda/attention_plan.cuh"
#include "kernels/cuda/attention_tiles.cuh"

namespace snug::kernels::cuda {

// Whether a kernel's scores have a bias. One without it has nothing of it in its loops.
enum class BiasUse : uint8_t { kNone, kAdded, kOfGrids };
template <BiasUse kUse>
struct BiasConstant {
  static constexpr BiasUse value = kUse;
};

// body(Constant<kGroups>{}, BiasConstant<kBias>{}), as ByWidth.
template <typename Body>
inline Error ByShape(const AttentionShape& s, const Body& body) {
  return ByWidth(s.D, [&](auto groups) {
    if (s.bias.table == nullptr) return body(groups, BiasConstant<BiasUse::kNone>{});
    if (s.bias.pitch > 0) return body(groups, BiasConstant<BiasUse::kOfGrids>{});
    return body(groups, BiasConstant<BiasUse::kAdded>{});
  });
}
// For __launch_bounds__: what leaves enough registers for no spill.
constexpr int BlocksOf(int groups, BiasUse bias) {
  return groups < (bias == BiasUse::kNone ? 4 : 2) ? kFewBlocks : 1;
}

// memory.bias[r - c + kTile - 1] is the bias of row r and column c; of grids memory.positions has
// those of rows, then those of columns. It may be read after the next __syncthreads; what was there
// before has been read by all.
template <BiasUse kUse>
__device__ inline void StageBias(const AttentionPlan& plan, int head, const TileBand& band,
                                 AttentionMemory& memory) {
  const AttentionBias& bias = plan.shape.bias;
  if constexpr (kUse == BiasUse::kNone) return;
  const int i = static_cast<int>(threadIdx.x);
  if constexpr (kUse == BiasUse::kOfGrids) {
    if (i >= 2 * kTile) return;
    const int row = i < kTile ? band.first_query + i : band.first_key + i - kTile;
    memory.positions[i] = row / band.width * static_cast<int>(bias.pitch) + row % band.width;
    return;
  }
  if (i >= kDiagonals) return;
  const int64_t entry = bias.origin + band.distance - (kTile - 1) + i;
  const int64_t within = max(int64_t{0}, min(entry, bias.entries - 1));
  memory.bias[i] = bias.table[head * bias.stride + within * bias.entry_stride];
}

// Of the thread's scores one.
struct ScoreAt {
  int i, j;
};

// The score there, a pair that is seen, with its bias.
template <BiasUse kUse>
__device__ inline float Biased(const AttentionPlan& plan, int head, const AttentionMemory& memory,
                               const ScoreAt& at, float score) {
  if constexpr (kUse == BiasUse::kNone) return score;
  const int row = Down() * kEach + at.i, column = Across() + at.j * kSide;
  if constexpr (kUse == BiasUse::kOfGrids) {
    const AttentionBias& bias = plan.shape.bias;
    const int64_t entry = bias.origin + memory.positions[row] - memory.positions[kTile + column];
    return score + bias.table[head * bias.stride + entry * bias.entry_stride];
  }
  return score + memory.bias[row - column + kTile - 1];
}

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_BIAS_CUH_
