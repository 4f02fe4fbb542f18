// Products of attention, tile by tile: a block of 16 x 16 threads has 64 x 64 scores, 4 x 4 of them
// in the registers of each thread. Operands come from memory in any of the number types and lie in
// shared memory as fp32.
//
// Thread (down, across) has the scores of rows 4 * down + i and columns across + 16 * j: its four
// columns are the four words of one Philox block, and what it reads of shared memory, 16 bytes at a
// time, meets no other thread of its warp in a bank. A warp has eight rows that follow each other.
#ifndef KERNELS_CUDA_ATTENTION_TILES_CUH_
#define KERNELS_CUDA_ATTENTION_TILES_CUH_

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"

namespace snug::kernels::cuda {

inline constexpr int kTile = kStreamTile;         // Queries, and keys, of a tile.
inline constexpr int kDiagonals = 2 * kTile - 1;  // Of a tile: distances that differ.
inline constexpr int kSide = 16, kEach = kTile / kSide;
inline constexpr int kWarpRows = kTile / (kMaxBlock / kWarp);
static_assert(kSide * kSide == kMaxBlock && kEach == 4, "Layouts below count on it.");

// Columns of operands that are staged at a time. Rows lie 9 or 17 times 16 bytes apart: eight rows
// begin in eight different groups of banks.
inline constexpr int kDepth = 32, kStagedRow = kDepth + 4, kWeightRow = kTile + 4;

struct AttentionMemory {
  alignas(kAccessBytes) float staged[2 * kTile * kStagedRow];
  // What the second product multiplies rows with: row by row p or ds, or their transpose.
  alignas(kAccessBytes) float weights[kTile * kWeightRow];
  float bias[kDiagonals + 1];
  int positions[2 * kTile];  // In grids: of a tile's queries, then of its keys.
};

__device__ inline int Down() { return static_cast<int>(threadIdx.x) / kSide; }
__device__ inline int Across() { return static_cast<int>(threadIdx.x) % kSide; }

struct Span {
  int begin, end;
};

// Up to kTile rows of one head of a tensor.
struct HeadRows {
  const void* x;   // The tensor.
  int64_t begin;   // The element where the first row begins,
  int64_t stride;  // and how many lie between rows.
  int rows, D;
  DType dtype;
  bool wide;  // Four neighbours are aligned, and D divides by 4.
};

// Columns [column, column + kColumns) of rows [row, row + kRows), as rows `kStride` apart. What x
// does not have is 0.
template <int V, int kRows, int kColumns, int kStride>
__device__ inline void StageBy(const HeadRows& x, int row, int column, float* to) {
  constexpr int kPacks = kColumns / V;
#pragma unroll 1  // More at once take registers that leave room for one block less.
  for (int pack = static_cast<int>(threadIdx.x); pack < kRows * kPacks; pack += kMaxBlock) {
    const int r = pack / kPacks, c = pack % kPacks * V;
    Floats<V> values = {};
    if (row + r < x.rows && column + c < x.D) {
      // The same address for all types, which takes fewer registers than one for each.
      const int64_t i = x.begin + (row + r) * x.stride + column + c;
      const int bytes = x.dtype == DType::kF32 ? 4 : 2;
      values = LoadAny<V>(static_cast<const char*>(x.x) + i * bytes, x.dtype, 0);
    }
    Store(to + r * kStride + c, values);
  }
}
template <int kRows, int kColumns, int kStride>
__device__ inline void Stage(const HeadRows& x, int row, int column, float* to) {
  if (x.wide) {
    StageBy<4, kRows, kColumns, kStride>(x, row, column, to);
  } else {
    StageBy<1, kRows, kColumns, kStride>(x, row, column, to);
  }
}

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_TILES_CUH_
