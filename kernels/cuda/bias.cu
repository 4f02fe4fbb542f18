// The bias on CUDA: its rows are copies, its gradient sums over columns.
#include "kernels/bias.h"

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/entries.h"
#include "kernels/cuda/pack.cuh"

namespace snug::kernels::cuda {
namespace {

template <typename T, int V>
__global__ void __launch_bounds__(kMaxBlock)
    BiasForwardKernel(BiasForwardParams p, ElementGrid grid) {
  ForElements(grid, [&](int64_t i, int64_t pack) {
    T* y = static_cast<T*>(p.y) + i * p.y_stride + pack * V;
    StorePack(y, LoadPack<V>(static_cast<const T*>(p.b) + pack * V));
  });
}

template <typename T, int V>
__global__ void __launch_bounds__(kMaxBlock)
    BiasBackwardKernel(BiasBackwardParams p, ColumnGrid grid) {
  SumColumns<V>(grid, static_cast<float*>(p.workspace), [&](int64_t row, int64_t c) {
    return Load<V>(static_cast<const T*>(p.dy) + row * p.dy_stride + c);
  });
}

}  // namespace

Error BiasForward(const BiasForwardParams& p, Stream stream) {
  const int64_t bytes = SizeOf(p.dtype);
  return ByPacks(p.dtype, p.C, {{p.b, 0, bytes}, {p.y, p.y_stride, bytes}}, [&](auto t, auto v) {
    constexpr int V = decltype(v)::value;
    const ElementGrid grid = ElementGridOf(p.N, p.C / V);
    return Launch(BiasForwardKernel<decltype(t), V>, {grid.blocks}, stream, p, grid);
  });
}

Error BiasBackward(const BiasBackwardParams& p, Stream stream) {
  return ByPacks(p.dtype, p.C, {{p.dy, p.dy_stride, SizeOf(p.dtype)}}, [&](auto t, auto v) {
    constexpr int V = decltype(v)::value;
    const ColumnGrid grid = ColumnGridOf(p.N, p.C, V);
    const Error error =
        Launch(BiasBackwardKernel<decltype(t), V>, {grid.blocks()}, stream, p, grid);
    if (!error.ok()) return error;
    return AddParts(grid, p.workspace, p.db, p.accumulate, stream);
  });
}

}  // namespace snug::kernels::cuda
