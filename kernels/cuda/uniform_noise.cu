// Uniform noise on CUDA: a thread draws the Philox blocks of its pack, so that each is drawn once.
#include "kernels/uniform_noise.h"

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/entries.h"
#include "kernels/cuda/pack.cuh"

namespace snug::kernels::cuda {
namespace {

constexpr int kWords = 4;  // Of a Philox block.

__device__ inline Floats<kWords> NoiseOf(const UniformNoiseParams& p, uint64_t block) {
  const Random4 random = RandomBlock(p.site, block);
  Floats<kWords> noise;
#pragma unroll
  for (int w = 0; w < kWords; ++w) {
    noise.at[w] = p.magnitude * (2.0f * ToUniform(random.word[w]) - 1.0f);
  }
  return noise;
}

// A pack is kBlocks Philox blocks wide. Where rows do not divide into packs of 16 bytes (kWide),
// its elements are moved one by one.
template <typename T, int kBlocks, bool kWide>
__global__ void __launch_bounds__(kMaxBlock)
    UniformNoiseKernel(UniformNoiseParams p, int64_t blocks_per_row, ElementGrid grid) {
  constexpr int V = kBlocks * kWords;
  ForElements(grid, [&](int64_t i, int64_t pack) {
    T* x = static_cast<T*>(p.x) + i * p.x_stride + pack * V;
    const auto first = static_cast<uint64_t>((p.first_row + i) * blocks_per_row + pack * kBlocks);
    Floats<V> noise;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const Floats<kWords> drawn = NoiseOf(p, first + b);
#pragma unroll
      for (int w = 0; w < kWords; ++w) noise.at[b * kWords + w] = drawn.at[w];
    }
    if constexpr (kWide) {
      Store(x, Each([](float a, float b) { return a + b; }, Load<V>(x), noise));
    } else {
#pragma unroll
      for (int k = 0; k < V; ++k) {
        if (pack * V + k < p.C) Round(Widen(x[k]) + noise.at[k], x[k]);
      }
    }
  });
}

}  // namespace

Error AddUniformNoise(const UniformNoiseParams& p, Stream stream) {
  return ByPacks(p.dtype, p.C, {{p.x, p.x_stride, SizeOf(p.dtype)}}, [&](auto t, auto v) {
    using T = decltype(t);
    constexpr bool kWide = decltype(v)::value > 1;
    constexpr int kBlocks = kWide ? decltype(v)::value / kWords : 1;
    const ElementGrid grid = ElementGridOf(p.N, Ceil(p.C, kBlocks * kWords));
    return Launch(UniformNoiseKernel<T, kBlocks, kWide>, {grid.blocks}, stream, p,
                  Ceil(p.C, kWords), grid);
  });
}

}  // namespace snug::kernels::cuda
