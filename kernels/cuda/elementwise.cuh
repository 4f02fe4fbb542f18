// Element by element over rows: one pack per thread, blocks that are as wide as a row needs and as
// high as that leaves room for.
#ifndef KERNELS_CUDA_ELEMENTWISE_CUH_
#define KERNELS_CUDA_ELEMENTWISE_CUH_

#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace snug::kernels::cuda {

struct ElementGrid {
  int64_t N = 0, packs = 0;    // Rows, and packs of each.
  int across_bits = 0;         // A block is 2^across_bits packs wide,
  int down = 0;                // and so many rows high.
  unsigned blocks_across = 0;  // < 2^31: rows are shorter than 2^39 packs.
  int64_t blocks = 0;
};

inline ElementGrid ElementGridOf(int64_t N, int64_t packs) {
  ElementGrid grid;
  grid.N = N;
  grid.packs = packs;
  while (grid.across_bits < kMaxBlockBits && int64_t{1} << grid.across_bits < packs) {
    ++grid.across_bits;
  }
  grid.down = kMaxBlock >> grid.across_bits;
  const int64_t across = Ceil(packs, int64_t{1} << grid.across_bits);
  grid.blocks_across = static_cast<unsigned>(across);
  grid.blocks = across * Ceil(N, grid.down);
  return grid;
}

// body(row, pack) for each pack of each row, on some thread.
template <typename Body>
__device__ inline void ForElements(const ElementGrid& grid, const Body& body) {
  const int across = static_cast<int>(threadIdx.x) & ((1 << grid.across_bits) - 1);
  const int down = static_cast<int>(threadIdx.x) >> grid.across_bits;
  for (int64_t block = blockIdx.x; block < grid.blocks; block += gridDim.x) {
    const int64_t row_block = block / grid.blocks_across;
    const int64_t row = row_block * grid.down + down;
    const int64_t pack = ((block - row_block * grid.blocks_across) << grid.across_bits) + across;
    if (row < grid.N && pack < grid.packs) body(row, pack);
  }
}

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_ELEMENTWISE_CUH_
