// Sums over the rows of a matrix, column by column, in one pass and in an order that depends on the
// sizes alone. A block has kColumnThreads packs of columns side by side and sums every kRowThreads-
// th row of its part of the rows; parts lie in workspace and are added in fp64 by a second kernel.
#ifndef KERNELS_CUDA_COLUMN_SUMS_CUH_
#define KERNELS_CUDA_COLUMN_SUMS_CUH_

#include <cstdint>

#include "kernels/column_sums.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"

namespace snug::kernels::cuda {

inline constexpr int kColumnThreads = 32, kRowThreads = kMaxBlock / kColumnThreads;

// Which rows and columns a block sums.
struct ColumnGrid {
  int64_t N = 0, C = 0;
  int64_t parts = 1, rows_per_part = 0, blocks_per_part = 0;
  SNUG_HOST_DEVICE int64_t blocks() const { return parts * blocks_per_part; }
};

// Of K sums at once, the parts' sums of those whose result is not null, one after another:
// [part][c] each. terms(row, c, term) gives V columns from c on of each sum.
template <int K>
SNUG_HOST_DEVICE inline float* PartsOf(const ColumnGrid& p, void* workspace,
                                       float* const (&results)[K], int set) {
  float* parts = static_cast<float*>(workspace);
  for (int k = 0; k < set; ++k) {
    if (results[k] != nullptr) parts += p.parts * p.C;
  }
  return parts;
}

template <int V, int K, typename Terms>
__device__ inline void SumColumnSets(const ColumnGrid& p, void* workspace,
                                     float* const (&results)[K], const Terms& terms) {
  __shared__ float sums[kRowThreads][kColumnThreads * V];
  const int across = static_cast<int>(threadIdx.x) % kColumnThreads;
  const int down = static_cast<int>(threadIdx.x) / kColumnThreads;
  for (int64_t block = blockIdx.x; block < p.blocks(); block += gridDim.x) {
    const int64_t part = block / p.blocks_per_part;
    const int64_t c = (block % p.blocks_per_part * kColumnThreads + across) * V;
    const int64_t begin = part * p.rows_per_part, end = min(begin + p.rows_per_part, p.N);
    Floats<V> sum[K] = {};
    for (int64_t row = begin + down; c < p.C && row < end; row += kRowThreads) {
      Floats<V> term[K] = {};
      terms(row, c, term);
#pragma unroll
      for (int k = 0; k < K; ++k) {
#pragma unroll
        for (int i = 0; i < V; ++i) sum[k].at[i] += term[k].at[i];
      }
    }
    const int64_t first = block % p.blocks_per_part * kColumnThreads * V;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (results[k] == nullptr) continue;
      float* sums_of_parts = PartsOf(p, workspace, results, k);
      __syncthreads();  // What was there before has been read by all.
#pragma unroll
      for (int i = 0; i < V; ++i) sums[down][across * V + i] = sum[k].at[i];
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < kColumnThreads * V; i += kMaxBlock) {
        if (first + i >= p.C) continue;
        float total = 0.0f;
#pragma unroll
        for (int j = 0; j < kRowThreads; ++j) total += sums[j][i];
        sums_of_parts[part * p.C + first + i] = total;
      }
    }
  }
}

// One sum, to where the parts' sums lie; null: nothing is kept.
template <int V, typename Term>
__device__ inline void SumColumns(const ColumnGrid& p, float* sums_of_parts, const Term& term) {
  float* const results[] = {sums_of_parts};
  SumColumnSets<V>(p, sums_of_parts, results,
                   [&](int64_t row, int64_t c, Floats<V>(&sum)[1]) { sum[0] = term(row, c); });
}

// y[c] (+)= sum over parts: kRowThreads threads share a column's parts.
static __global__ void __launch_bounds__(kMaxBlock)
    AddPartsKernel(const float* sums_of_parts, int64_t parts, int64_t C, float* y,
                   bool accumulate) {
  __shared__ double sums[kRowThreads][kColumnThreads];
  const int across = static_cast<int>(threadIdx.x) % kColumnThreads;
  const int down = static_cast<int>(threadIdx.x) / kColumnThreads;
  for (int64_t first = int64_t{blockIdx.x} * kColumnThreads; first < C;
       first += int64_t{gridDim.x} * kColumnThreads) {
    const int64_t c = first + across;
    double sum = 0.0;
    for (int64_t part = down; c < C && part < parts; part += kRowThreads) {
      sum += sums_of_parts[part * C + c];
    }
    __syncthreads();  // What was there before has been read by all.
    sums[down][across] = sum;
    __syncthreads();
    if (down != 0 || c >= C) continue;
    sum = accumulate ? y[c] : 0.0;
#pragma unroll
    for (int j = 0; j < kRowThreads; ++j) sum += sums[j][across];
    y[c] = static_cast<float>(sum);
  }
}

inline ColumnGrid ColumnGridOf(int64_t N, int64_t C, int V) {
  ColumnGrid p;
  p.N = N;
  p.C = C;
  p.parts = ColumnParts(N);
  p.rows_per_part = Ceil(N, p.parts);
  p.blocks_per_part = Ceil(C, int64_t{kColumnThreads} * V);
  return p;
}

// The second step: y (+)= what SumColumns left in workspace.
inline Error AddParts(const ColumnGrid& p, const void* workspace, float* y, bool accumulate,
                      Stream stream) {
  return Launch(AddPartsKernel, {Ceil(p.C, kColumnThreads)}, stream,
                static_cast<const float*>(workspace), p.parts, p.C, y, accumulate);
}

// The second step for each result that is not null.
template <int K>
inline Error AddPartSets(const ColumnGrid& p, void* workspace, float* const (&results)[K],
                         bool accumulate, Stream stream) {
  for (int k = 0; k < K; ++k) {
    if (results[k] == nullptr) continue;
    const Error error =
        AddParts(p, PartsOf(p, workspace, results, k), results[k], accumulate, stream);
    if (!error.ok()) return error;
  }
  return {};
}

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_COLUMN_SUMS_CUH_
