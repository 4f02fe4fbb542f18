// Moving rows on CUDA. Types are known when running: packs are moved as they lie, or through fp32.
#include "kernels/rows.h"

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/entries.h"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/team.cuh"

namespace snug::kernels::cuda {
namespace {

template <typename T, int V>
__device__ inline void CopyPack(const T* x, T* y) {
  StorePack(y, LoadPack<V>(x));
}

template <typename T, int V>
__global__ void __launch_bounds__(kMaxBlock) GatherKernel(GatherRowsParams p, ElementGrid grid) {
  ForElements(grid, [&](int64_t i, int64_t pack) {
    const int64_t begin = p.period == 0 ? 0 : i - i % p.period;
    const int64_t from = begin + IndexAt(p.index, p.index_type, i - begin);
    CopyPack<T, V>(static_cast<const T*>(p.x) + from * p.x_stride + pack * V,
                   static_cast<T*>(p.y) + i * p.y_stride + pack * V);
  });
}

template <typename T, int V>
__global__ void __launch_bounds__(kMaxBlock) ScatterKernel(ScatterRowsParams p, ElementGrid grid) {
  ForElements(grid, [&](int64_t i, int64_t pack) {
    const T* x = static_cast<const T*>(p.x) + i * p.x_stride + pack * V;
    T* y = static_cast<T*>(p.y) + IndexAt(p.index, p.index_type, i) * p.y_stride + pack * V;
    if (!p.accumulate) return CopyPack<T, V>(x, y);
    Store(y, Each([](float a, float b) { return a + b; }, Load<V>(y), Load<V>(x)));
  });
}

// With zero_others: rows of y, so that each is written once.
struct ScatterAllParams {
  ScatterRowsParams scatter;
  int64_t N = 0;  // Rows of y.
};

// The i whose index is `row`, or -1. Indices rise, so it is found by halving.
__device__ inline int64_t FindIndex(const ScatterRowsParams& p, int64_t row) {
  int64_t low = 0, high = p.N;  // The first index that is not below `row` lies in [low, high].
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (IndexAt(p.index, p.index_type, middle) < row) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < p.N && IndexAt(p.index, p.index_type, low) == row ? low : -1;
}

template <typename T, int V, bool kBlock>
__global__ void __launch_bounds__(kMaxBlock) ScatterAllKernel(ScatterAllParams all) {
  const ScatterRowsParams& p = all.scatter;
  const Team<kBlock> team;
  for (int64_t row = team.row; row < all.N; row += team.rows_apart) {
    const int64_t i = FindIndex(p, row);
    if (i >= 0 && p.x == nullptr) continue;
    T* y = static_cast<T*>(p.y) + row * p.y_stride;
    for (int64_t pack = team.thread; pack < p.C / V; pack += team.threads) {
      Pack<T, V> value = {};
      if (i >= 0) value = LoadPack<V>(static_cast<const T*>(p.x) + i * p.x_stride + pack * V);
      StorePack(y + pack * V, value);
    }
  }
}

template <int V>
__global__ void __launch_bounds__(kMaxBlock) CastKernel(CastRowsParams p, ElementGrid grid) {
  ForElements(grid, [&](int64_t i, int64_t pack) {
    StoreAny(p.y, p.y_dtype, i * p.y_stride + pack * V,
             LoadAny<V>(p.x, p.x_dtype, i * p.x_stride + pack * V));
  });
}

template <int V>
__global__ void __launch_bounds__(kMaxBlock) AddKernel(AddRowsParams p, ElementGrid grid) {
  ForElements(grid, [&](int64_t i, int64_t pack) {
    const Floats<V> a = LoadAny<V>(p.a, p.a_dtype, i * p.a_stride + pack * V);
    const Floats<V> b = LoadAny<V>(p.b, p.b_dtype, i * p.b_stride + pack * V);
    StoreAny(p.y, p.y_dtype, i * p.y_stride + pack * V,
             Each([&](float f, float g) { return f + g * p.scale; }, a, b));
  });
}

}  // namespace

Error GatherRows(const GatherRowsParams& p, Stream stream) {
  const int64_t bytes = SizeOf(p.dtype);
  return ByPacks(p.dtype, p.C, {{p.x, p.x_stride, bytes}, {p.y, p.y_stride, bytes}},
                 [&](auto t, auto v) {
                   constexpr int V = decltype(v)::value;
                   const ElementGrid grid = ElementGridOf(p.N, p.C / V);
                   return Launch(GatherKernel<decltype(t), V>, {grid.blocks}, stream, p, grid);
                 });
}

Error ScatterRows(const ScatterRowsParams& p, Stream stream) {
  const int64_t bytes = SizeOf(p.dtype);
  return ByPacks(p.dtype, p.C, {{p.x, p.x_stride, bytes}, {p.y, p.y_stride, bytes}},
                 [&](auto t, auto v) {
                   using T = decltype(t);
                   constexpr int V = decltype(v)::value;
                   if (p.zero_others) {
                     const ScatterAllParams all = {p, p.y_rows};
                     return LaunchRows(ScatterAllKernel<T, V, false>, ScatterAllKernel<T, V, true>,
                                       p.C / V, stream, all);
                   }
                   const ElementGrid grid = ElementGridOf(p.N, p.C / V);
                   return Launch(ScatterKernel<T, V>, {grid.blocks}, stream, p, grid);
                 });
}

Error CastRows(const CastRowsParams& p, Stream stream) {
  return ByWidth(p.C, {{p.x, p.x_stride, SizeOf(p.x_dtype)}, {p.y, p.y_stride, SizeOf(p.y_dtype)}},
                 [&](auto v) {
                   const ElementGrid grid = ElementGridOf(p.N, p.C / decltype(v)::value);
                   return Launch(CastKernel<decltype(v)::value>, {grid.blocks}, stream, p, grid);
                 });
}

Error AddRows(const AddRowsParams& p, Stream stream) {
  return ByWidth(p.C,
                 {{p.a, p.a_stride, SizeOf(p.a_dtype)},
                  {p.b, p.b_stride, SizeOf(p.b_dtype)},
                  {p.y, p.y_stride, SizeOf(p.y_dtype)}},
                 [&](auto v) {
                   const ElementGrid grid = ElementGridOf(p.N, p.C / decltype(v)::value);
                   return Launch(AddKernel<decltype(v)::value>, {grid.blocks}, stream, p, grid);
                 });
}

}  // namespace snug::kernels::cuda
