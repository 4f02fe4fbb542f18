// Products of attention's tiles in registers, by fused multiply-adds in fp32, and the way of their
// results back to memory.
#ifndef KERNELS_CUDA_ATTENTION_PRODUCTS_CUH_
#define KERNELS_CUDA_ATTENTION_PRODUCTS_CUH_

#include <cstdint>

#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/pack.cuh"

namespace snug::kernels::cuda {

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

#endif  // KERNELS_CUDA_ATTENTION_PRODUCTS_CUH_
