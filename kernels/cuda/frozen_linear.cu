// Linear layers over frozen weights on CUDA: a block of threads has a tile of `out`, for which it
// brings `in` and W', dequantised, into shared memory a few terms at a time.
#include "kernels/frozen_linear.h"

#include "kernels/cuda/entries.h"
#include "kernels/cuda/frozen_weight.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"

namespace snug::kernels::cuda {
namespace {

// A thread has kPer x kPer elements of the tile.
constexpr int kTile = 64, kTerms = 16, kPer = 4, kAcross = kTile / kPer;
static_assert(kAcross * kAcross == kMaxBlock && kTile * kTerms == kMaxBlock * 4);

struct Tiles {
  int64_t terms, columns;  // Of the product.
  int64_t across;          // Tiles side by side.
};

// Shared memory, by terms; a column of padding keeps the transposed stores off one bank.
using Slab = float[kTerms][kTile + 4];

template <typename T>
__device__ inline float Rounded(float x) {
  T y;
  Round(x, y);
  return Widen(y);
}

// Four terms of one row of `in` per thread.
template <typename T>
__device__ inline void LoadIn(const FrozenLinearParams& p, const Tiles& t, int64_t row,
                              int64_t term, Slab& slab) {
  const int r = static_cast<int>(threadIdx.x) / 4, k = static_cast<int>(threadIdx.x) % 4 * 4;
  const T* in = static_cast<const T*>(p.in) + (row + r) * p.in_stride + term + k;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    slab[k + i][r] = row + r < p.M && term + k + i < t.terms ? Widen(in[i]) : 0.0f;
  }
}

// Four neighbours of one row of W' per thread: terms of a column (forward), columns of a term.
template <typename T, bool kForward>
__device__ inline void LoadWeight(const FrozenLinearParams& p, int64_t column, int64_t term,
                                  Slab& slab) {
  const int thread = static_cast<int>(threadIdx.x), each = (kForward ? kTerms : kTile) / 4;
  const int n = thread / each, k = thread % each * 4;
  const int64_t row = (kForward ? column : term) + n, first = (kForward ? term : column) + k;
  const int64_t count = row < p.N ? p.K - first : 0;
  const Floats<4> values = FourValues(p.W, p.K, row, first, count);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float value = Rounded<T>(values.at[i]);
    if (kForward) {
      slab[k + i][n] = value;
    } else {
      slab[n][k + i] = value;
    }
  }
}

// Moves a block's sums to the totals.
__device__ inline void Fold(float (&sums)[kPer][kPer], float (&totals)[kPer][kPer]) {
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      totals[i][j] += sums[i][j];
      sums[i][j] = 0.0f;
    }
  }
}

template <typename T, bool kForward>
__global__ void __launch_bounds__(kMaxBlock) ProductKernel(FrozenLinearParams p, Tiles t) {
  __shared__ Slab in, weight;
  const int x = static_cast<int>(threadIdx.x) % kAcross * kPer;
  const int y = static_cast<int>(threadIdx.x) / kAcross * kPer;
  const int64_t down = (p.M + kTile - 1) / kTile;
  for (int64_t tile = blockIdx.x; tile < down * t.across; tile += gridDim.x) {
    const int64_t row = tile / t.across * kTile, column = tile % t.across * kTile;
    float sums[kPer][kPer] = {}, totals[kPer][kPer] = {};
    for (int64_t term = 0; term < t.terms; term += kTerms) {
      __syncthreads();  // The slabs before have been read.
      LoadIn<T>(p, t, row, term, in);
      LoadWeight<T, kForward>(p, column, term, weight);
      __syncthreads();
#pragma unroll
      for (int k = 0; k < kTerms; ++k) {
#pragma unroll
        for (int i = 0; i < kPer; ++i) {
#pragma unroll
          for (int j = 0; j < kPer; ++j) {
            sums[i][j] = fmaf(in[k][y + i], weight[k][x + j], sums[i][j]);
          }
        }
      }
      if ((term + kTerms) % kFrozenTerms == 0) Fold(sums, totals);
    }
    Fold(sums, totals);
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
#pragma unroll
      for (int j = 0; j < kPer; ++j) {
        if (row + y + i >= p.M || column + x + j >= t.columns) continue;
        T* out = static_cast<T*>(p.out) + (row + y + i) * p.out_stride + column + x + j;
        Round(totals[i][j], *out);
      }
    }
  }
}

template <bool kForward>
Error Product(const FrozenLinearParams& p, Stream stream) {
  const int64_t columns = kForward ? p.N : p.K;
  const Tiles tiles = {kForward ? p.K : p.N, columns, Ceil(columns, kTile)};
  return ByType(p.dtype, [&](auto t) {
    return Launch(ProductKernel<decltype(t), kForward>, {Ceil(p.M, kTile) * tiles.across}, stream,
                  p, tiles);
  });
}

}  // namespace

Error FrozenLinearForward(const FrozenLinearParams& p, Stream stream) {
  return Product<true>(p, stream);
}
Error FrozenLinearBackward(const FrozenLinearParams& p, Stream stream) {
  return Product<false>(p, stream);
}

}  // namespace snug::kernels::cuda
