// Columns by id on CUDA. Adding: the first token of an id adds up all of that id, so that no two
// threads meet and the order is that of the rows.
#include "kernels/columns.h"

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/entries.h"
#include "kernels/cuda/launch.cuh"

namespace snug::kernels::cuda {
namespace {

__global__ void __launch_bounds__(kMaxBlock)
    GatherColumnsKernel(ColumnsParams p, ElementGrid grid) {
  ForElements(grid, [&](int64_t i, int64_t r) {
    p.y[i * p.y_stride + r] = p.x[r * p.x_stride + p.ids[i]];
  });
}

__device__ bool IsFirst(const int32_t* ids, int64_t i) {
  for (int64_t before = 0; before < i; ++before) {
    if (ids[before] == ids[i]) return false;
  }
  return true;
}

__global__ void __launch_bounds__(kMaxBlock) AddColumnsKernel(ColumnsParams p, ElementGrid grid) {
  ForElements(grid, [&](int64_t i, int64_t r) {
    if (!IsFirst(p.ids, i)) return;
    const int32_t id = p.ids[i];
    float sum = p.x[r * p.x_stride + id];
    for (int64_t k = i; k < p.N; ++k) {
      if (p.ids[k] == id) sum += p.y[k * p.y_stride + r];
    }
    p.x[r * p.x_stride + id] = sum;
  });
}

}  // namespace

Error GatherColumns(const ColumnsParams& p, Stream stream) {
  const ElementGrid grid = ElementGridOf(p.N, p.R);
  return Launch(GatherColumnsKernel, {grid.blocks}, stream, p, grid);
}

Error AddColumns(const ColumnsParams& p, Stream stream) {
  const ElementGrid grid = ElementGridOf(p.N, p.R);
  return Launch(AddColumnsKernel, {grid.blocks}, stream, p, grid);
}

}  // namespace snug::kernels::cuda
