// Dropout on CUDA. A warp takes a tile of columns: each lane draws whole Philox blocks, votes on
// its words give every lane the bits of all columns, and each then takes its own pack's.
#include "kernels/dropout.h"

#include "kernels/cuda/entries.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"

namespace snug::kernels::cuda {
namespace {

inline constexpr int kDraw = 4 * kWarp;  // Columns that a block per lane gives.

// Kept columns of a tile: word w of round j says of columns kDraw j + 64 (bit / 16) + 16 w + bit %
// 16 whether they are, for two groups of 64 (kernels/dropout.h).
template <int kRounds>
struct Kept {
  unsigned votes[4 * kRounds];

  // Bits of `n` columns from `c` on, which do not cross a multiple of 16.
  __device__ unsigned Bits(int c, int n) const {
    const int vote = c / kDraw * 4 + c % 64 / 16;
    unsigned bits = votes[0];
#pragma unroll
    for (int i = 1; i < 4 * kRounds; ++i) bits = vote == i ? votes[i] : bits;
    return bits >> (c % kDraw / 64 * 16 + c % 16) & ((1u << n) - 1);
  }
};

template <int kRounds>
__device__ inline Kept<kRounds> Draw(const DropoutParams& p, int64_t row, int64_t column,
                                     unsigned threshold) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t groups = (p.C + 63) / 64;
  Kept<kRounds> kept;
  if (p.rows_per_draw > 0) {
    const int64_t first = (p.first_row + row) / p.rows_per_draw * groups * 16;
    const Random4 random = RandomBlock(p.site, static_cast<uint64_t>(first));
#pragma unroll
    for (unsigned& votes : kept.votes) votes = random.word[0] >> 1 >= threshold ? ~0u : 0;
    return kept;
  }
  const int64_t drawn = p.first_row + (p.row_index == nullptr ? row : p.row_index[row]);
#pragma unroll
  for (int j = 0; j < kRounds; ++j) {
    const int64_t group = column / 64 + 2 * j + lane / 16;
    const uint64_t first = static_cast<uint64_t>(drawn * groups + group) * 16;
    const Random4 random = RandomBlock(p.site, first + static_cast<uint64_t>(lane % 16));
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      kept.votes[4 * j + w] = __ballot_sync(~0u, random.word[w] >> 1 >= threshold);
    }
  }
  return kept;
}

template <typename T, int V>
__device__ inline void DropPack(const DropoutParams& p, int64_t row, int64_t c, unsigned bits,
                                float scale) {
  const T* x = static_cast<const T*>(p.x) + row * p.x_stride + c;
  T* y = static_cast<T*>(p.y) + row * p.y_stride + c;
  Floats<V> v = Load<V>(x);
#pragma unroll
  for (int i = 0; i < V; ++i) v.at[i] *= (bits >> i & 1) != 0 ? scale : 0.0f;
  if (p.accumulate) v = Each([](float a, float b) { return a + b; }, v, Load<V>(y));
  Store(y, v);
}

// V elements of a lane lie side by side if they move as one, else a warp apart.
template <typename T, int V, bool kAligned>
__global__ void __launch_bounds__(kMaxBlock, kFewBlocks)
    DropoutKernel(DropoutParams p, unsigned threshold, float scale) {
  constexpr int kTile = kWarp * V;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t tiles = (p.C + kTile - 1) / kTile, warps = blockDim.x / kWarp;
  const int64_t first = int64_t{blockIdx.x} * warps + threadIdx.x / kWarp;
  for (int64_t i = first; i < p.N * tiles; i += int64_t{gridDim.x} * warps) {
    const int64_t row = i / tiles, column = i % tiles * kTile;
    const Kept<V / 4> kept = Draw<V / 4>(p, row, column, threshold);
    if (kAligned) {
      const int64_t c = column + lane * V;
      if (c < p.C) DropPack<T, V>(p, row, c, kept.Bits(lane * V, V), scale);
    } else {
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const int64_t c = column + j * kWarp + lane;
        if (c < p.C) DropPack<T, 1>(p, row, c, kept.Bits(j * kWarp + lane, 1), scale);
      }
    }
    const int64_t c = column + lane * 8;
    if (p.mask != nullptr && lane < kTile / 8 && c < p.C) {
      const unsigned there = p.C - c < 8 ? (1u << static_cast<int>(p.C - c)) - 1 : 0xffu;
      p.mask[row * p.mask_stride + c / 8] = static_cast<uint8_t>(kept.Bits(lane * 8, 8) & there);
    }
  }
}

}  // namespace

Error Dropout(const DropoutParams& p, Stream stream) {
  const auto threshold = static_cast<unsigned>(p.rate * 2147483648.0);
  const float scale = static_cast<float>(1.0 / (1.0 - p.rate));
  const int64_t bytes = SizeOf(p.dtype);
  const std::initializer_list<Operand> operands = {{p.x, p.x_stride, bytes},
                                                   {p.y, p.y_stride, bytes}};
  return ByType(p.dtype, [&](auto t) {
    using T = decltype(t);
    constexpr int V = kAccessBytes / static_cast<int>(sizeof(T));
    bool aligned = true;
    for (const Operand& x : operands) aligned = aligned && Divides(x, p.C, V);
    const int64_t warps = p.N * Ceil(p.C, kWarp * V);
    const Grid grid = {Ceil(warps, kMaxBlock / kWarp)};
    return aligned ? Launch(DropoutKernel<T, V, true>, grid, stream, p, threshold, scale)
                   : Launch(DropoutKernel<T, V, false>, grid, stream, p, threshold, scale);
  });
}

}  // namespace snug::kernels::cuda
