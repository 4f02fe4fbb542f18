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

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"

namespace snug::kernels::cuda {

inline constexpr int kTile = 64;  // Queries, and keys, of a tile.
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
};

__device__ inline int Down() { return static_cast<int>(threadIdx.x) / kSide; }
__device__ inline int Across() { return static_cast<int>(threadIdx.x) % kSide; }

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
      values = LoadAny<V>(x.x, x.dtype, x.begin + (row + r) * x.stride + column + c);
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

// scores[i][j] = a[4 * down + i] . b[across + 16 * j], summed in the order of columns.
__device__ inline void Multiply(const HeadRows& a, const HeadRows& b, AttentionMemory& memory,
                                float (&scores)[kEach][kEach]) {
  float* staged_b = memory.staged + kTile * kStagedRow;
  const float* left = memory.staged + Down() * kEach * kStagedRow;
  const float* right = staged_b + Across() * kStagedRow;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) scores[i][j] = 0.0f;
  }
  for (int column = 0; column < a.D; column += kDepth) {
    __syncthreads();  // What was staged before has been read by all.
    Stage<kTile, kDepth, kStagedRow>(a, 0, column, memory.staged);
    Stage<kTile, kDepth, kStagedRow>(b, 0, column, staged_b);
    __syncthreads();
    const int depth = min(kDepth, a.D - column);
#pragma unroll 1
    for (int k = 0; k < depth; k += 4) {
      Floats<4> of_b[kEach];
#pragma unroll
      for (int j = 0; j < kEach; ++j) of_b[j] = Load<4>(right + j * kSide * kStagedRow + k);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const Floats<4> of_a = Load<4>(left + i * kStagedRow + k);
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
#pragma unroll
          for (int n = 0; n < 4; ++n) {
            scores[i][j] = __fmaf_rn(of_a.at[n], of_b[j].at[n], scores[i][j]);
          }
        }
      }
    }
  }
}

struct Span {
  int begin, end;
};

// sums[i][g] += sum over t of weights[4 * down + i][t] * b[t], columns 4 * across + 64 * g and the
// three behind it: the thread's part of 64 rows of 64 * kGroups columns. Terms outside `terms`, of
// the warp, have no weight and are not read, so that nothing comes from them.
template <int kGroups>
__device__ inline void Accumulate(AttentionMemory& memory, const HeadRows& b, Span terms,
                                  Floats<4> (&sums)[kEach][kGroups]) {
  constexpr int kColumns = kTile * kGroups, kTerms = kTile / kGroups;
  const float* weights = memory.weights + Down() * kEach * kWeightRow;
  for (int first = 0; first < b.rows; first += kTerms) {
    __syncthreads();  // Weights are there, and what was staged before has been read by all.
    Stage<kTerms, kColumns, kColumns>(b, first, 0, memory.staged);
    __syncthreads();
    if (Across() * 4 >= b.D) continue;
    const int end = min(terms.end, first + kTerms);
    for (int t = max(terms.begin, first) / 4 * 4; t < end; t += 4) {
      Floats<4> weight[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) weight[i] = Load<4>(weights + i * kWeightRow + t);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const float* row = memory.staged + (t - first + n) * kColumns + Across() * 4;
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          const Floats<4> value = Load<4>(row + g * kTile);
#pragma unroll
          for (int i = 0; i < kEach; ++i) {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
              sums[i][g].at[c] = __fmaf_rn(weight[i].at[n], value.at[c], sums[i][g].at[c]);
            }
          }
        }
      }
    }
  }
}

// ---- results ------------------------------------------------------------------------------------

template <int V>
__device__ inline void StoreAny(void* y, DType dtype, int64_t i, const Floats<V>& values) {
  if (dtype == DType::kF32) return Store(static_cast<float*>(y) + i, values);
  if (dtype == DType::kBF16) return Store(static_cast<bf16*>(y) + i, values);
  Store(static_cast<f16*>(y) + i, values);
}

// y[row][c] = sums * factor for the thread's part of a row of a head, which begins at element
// `begin`.
template <int kGroups>
__device__ inline void StoreRow(void* y, int64_t begin, const HeadRows& like, float factor,
                                const Floats<4> (&sums)[kGroups]) {
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const int column = Across() * 4 + g * kTile;
    if (like.wide && column < like.D) {
      StoreAny(y, like.dtype, begin + column, Each([&](float x) { return x * factor; }, sums[g]));
      continue;
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (column + c >= like.D) continue;
      StoreAny<1>(y, like.dtype, begin + column + c, {{sums[g].at[c] * factor}});
    }
  }
}

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_ATTENTION_TILES_CUH_
