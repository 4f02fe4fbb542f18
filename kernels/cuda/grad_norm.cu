// Sum of squares on CUDA: a fixed number of blocks sum every so many spans each, and one block adds
// their sums, so that the order depends on the sizes of the tensors alone.
#include "kernels/grad_norm.h"

#include "kernels/cuda/entries.h"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/tensor_list.cuh"

namespace snug::kernels::cuda {
namespace {

using NormList = TensorList<NormTensor>;

// Of all threads of the block, in thread 0.
__device__ inline double BlockSum(double x) {
  __shared__ double warps[kMaxBlock / kWarp];
#pragma unroll
  for (int lane = kWarp / 2; lane > 0; lane /= 2) x += __shfl_xor_sync(~0u, x, lane);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = x;
  __syncthreads();
  double sum = 0.0;
  for (int i = 0; threadIdx.x == 0 && i < kMaxBlock / kWarp; ++i) sum += warps[i];
  return sum;
}

// parts[block] = the block's sum, or += that where a launch before has left one.
__global__ void __launch_bounds__(kMaxBlock)
    SumSquaresKernel(const __grid_constant__ NormList list, double* parts, int64_t parts_left) {
  constexpr int V = 8;
  double sum = 0.0;
  ForSpans(list, [&](const NormTensor& tensor, int64_t begin, int64_t end) {
    ForSpanPacks<V>(IsAligned(tensor.x, kAccessBytes), begin, end, [&](auto v, int64_t i) {
      constexpr int kElements = decltype(v)::value;
      const Floats<kElements> x = LoadAny<kElements>(tensor.x, tensor.dtype, i);
#pragma unroll
      for (int k = 0; k < kElements; ++k) {
        sum += static_cast<double>(x.at[k]) * static_cast<double>(x.at[k]);
      }
    });
  });
  sum = BlockSum(sum);
  if (threadIdx.x != 0) return;
  parts[blockIdx.x] = blockIdx.x < parts_left ? parts[blockIdx.x] + sum : sum;
}

__global__ void __launch_bounds__(kMaxBlock)
    SumOfPartsKernel(const double* parts, int64_t count, double* sum_squares) {
  double sum = 0.0;
  for (int64_t i = threadIdx.x; i < count; i += kMaxBlock) sum += parts[i];
  sum = BlockSum(sum);
  if (threadIdx.x == 0) *sum_squares = sum;
}

__global__ void __launch_bounds__(kWarp) ClipFactorKernel(ClipFactorParams p) {
  if (threadIdx.x == 0) *p.factor = ClipFactorOf(*p.sum_squares, p.max_norm);
}

}  // namespace

Error SumSquares(const SumSquaresParams& p, Stream stream) {
  auto* parts = static_cast<double*>(p.workspace);
  int64_t count = 0;  // Of parts that hold a sum.
  const auto add = [&](const NormList& list) {
    const int64_t blocks = list.spans() < kSumSquaresParts ? list.spans() : kSumSquaresParts;
    const Error error = Launch(SumSquaresKernel, {blocks}, stream, list, parts, count);
    count = blocks > count ? blocks : count;
    return error;
  };
  const auto all = [](const NormTensor&) { return true; };
  if (const Error error = ForLists(p.tensors, p.count, all, add); !error.ok()) return error;
  return Launch(SumOfPartsKernel, {1}, stream, static_cast<const double*>(parts), count,
                p.sum_squares);
}

Error ClipFactor(const ClipFactorParams& p, Stream stream) {
  return Launch(ClipFactorKernel, {1, kWarp}, stream, p);
}

}  // namespace snug::kernels::cuda
