// Column-row sampling on CUDA. One block selects: what it sums are integers, so that the order in
// which its threads add them does not matter, and every thread follows the same search.
#include "kernels/sampling.h"

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/entries.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/sampling_rules.h"

namespace snug::kernels::cuda {
namespace {

using sampling::Mass;

constexpr int kThreads = 512, kWarps = kThreads / kWarp;  // More leave too few registers.
static_assert(kWarps <= kWarp, "a warp has a lane for each warp");
constexpr int kEach = 4;  // Consecutive rows of a thread in the pass that selects.

struct Add {
  __device__ Mass operator()(const Mass& a, const Mass& b) const {
    return {a.count + b.count, a.sum + b.sum};
  }
};
struct Largest {
  __device__ Mass operator()(const Mass& a, const Mass& b) const {
    return {max(a.count, b.count), max(a.sum, b.sum)};
  }
};

// ---- what all threads of the block have together ------------------------------------------------

template <typename Operation>
__device__ inline Mass WarpReduce(Mass mine, const Operation& operation) {
#pragma unroll
  for (int lane = kWarp / 2; lane > 0; lane /= 2) {
    mine = operation(
        mine, {__shfl_xor_sync(~0u, mine.count, lane), __shfl_xor_sync(~0u, mine.sum, lane)});
  }
  return mine;
}

template <typename Operation>
__device__ inline Mass BlockReduce(const Mass& mine, const Operation& operation) {
  __shared__ uint64_t counts[kWarps], sums[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const Mass warp = WarpReduce(mine, operation);
  __syncthreads();  // What was there before has been read by all.
  if (lane == 0) {
    counts[threadIdx.x / kWarp] = warp.count;
    sums[threadIdx.x / kWarp] = warp.sum;
  }
  __syncthreads();
  return WarpReduce(lane < kWarps ? Mass{counts[lane], sums[lane]} : Mass{}, operation);
}

__device__ inline Mass WarpScan(Mass mine) {  // Inclusive.
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int by = 1; by < kWarp; by *= 2) {
    const Mass before = {__shfl_up_sync(~0u, mine.count, by), __shfl_up_sync(~0u, mine.sum, by)};
    if (lane >= by) mine = Add()(mine, before);
  }
  return mine;
}

// The mass of all threads before this one, and of all.
struct Scan {
  Mass before, all;
};
__device__ inline Scan BlockScan(const Mass& mine) {
  __shared__ uint64_t counts[kWarps], sums[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const Mass inside = WarpScan(mine);
  __syncthreads();  // What was there before has been read by all.
  if (lane == kWarp - 1) {
    counts[warp] = inside.count;
    sums[warp] = inside.sum;
  }
  __syncthreads();
  const Mass warps = WarpScan(lane < kWarps ? Mass{counts[lane], sums[lane]} : Mass{});
  const Mass upto = {__shfl_sync(~0u, warps.count, warp), __shfl_sync(~0u, warps.sum, warp)};
  const Mass all = {__shfl_sync(~0u, warps.count, kWarp - 1),
                    __shfl_sync(~0u, warps.sum, kWarp - 1)};
  return {{upto.count - counts[warp] + inside.count - mine.count,
           upto.sum - sums[warp] + inside.sum - mine.sum},
          all};
}

// ---- scores -------------------------------------------------------------------------------------

__device__ inline bool Masked(const SampleRowsParams& p, int64_t t) {
  return p.mask != nullptr && p.mask[t] == 0;
}
__device__ inline uint32_t BitsOfScore(const SampleRowsParams& p, int64_t t, bool with_surrogate) {
  if (Masked(p, t)) return 0;
  return sampling::OrderedBits(with_surrogate ? p.norms[t] * p.surrogate[t] : p.norms[t]);
}

// Each thread fills in, and later reads, the scores of rows threadIdx.x, threadIdx.x + kThreads, ..
__device__ inline uint32_t FillScores(const SampleRowsParams& p, uint32_t* scores) {
  Mass found;  // The largest score: without the surrogate, and with it.
  for (int64_t t = threadIdx.x; t < p.T; t += kThreads) {
    const uint64_t with = p.surrogate == nullptr ? 0 : BitsOfScore(p, t, true);
    found = Largest()(found, {BitsOfScore(p, t, false), with});
  }
  found = BlockReduce(found, Largest());
  const bool with_surrogate = found.sum > 0;
  const auto largest = static_cast<uint32_t>(with_surrogate ? found.sum : found.count);
  Mass all;
  for (int64_t t = threadIdx.x; t < p.T; t += kThreads) {
    scores[t] = sampling::Quantize(BitsOfScore(p, t, with_surrogate), largest);
    all = Add()(all, {Masked(p, t) ? 0u : 1u, scores[t]});
  }
  const uint32_t least = sampling::FloorOf(p.floor, BlockReduce(all, Add()));
  Mass highest;
  for (int64_t t = threadIdx.x; t < p.T; t += kThreads) {
    if (scores[t] < least && !Masked(p, t)) scores[t] = least;
    highest = Largest()(highest, {0, scores[t]});
  }
  return static_cast<uint32_t>(BlockReduce(highest, Largest()).sum);
}

__device__ inline Mass MassAbove(const SampleRowsParams& p, const uint32_t* scores,
                                 uint64_t limit) {
  Mass above;
  for (int64_t t = threadIdx.x; t < p.T; t += kThreads) {
    if (scores[t] > limit) above = Add()(above, {1, scores[t]});
  }
  return BlockReduce(above, Add());
}

// ---- rows ---------------------------------------------------------------------------------------

struct Selection {
  uint64_t limit;  // Certain are the scores above it.
  uint64_t certain;
  sampling::Draw draw;
  uint64_t start;  // Of the systematic sample.
};

__device__ inline void Put(const SampleRowsParams& p, uint64_t slot, int64_t row, float weight) {
  p.index[slot] = static_cast<int32_t>(row);
  p.weights[slot] = weight;
}

// The rows of the tile that are this thread's, `before` them those of all threads and tiles before.
__device__ inline void TakeEach(const SampleRowsParams& p, const uint32_t* scores, int64_t first,
                                Mass before, const Selection& s) {
  uint64_t* cumulated = static_cast<uint64_t*>(p.workspace);
  const bool systematic = p.kind == SamplingKind::kSystematic;
  const bool draws = systematic && s.draw.rest > 0;
  sampling::Crossing crossing;
  if (draws) crossing = sampling::CrossingAt(before.sum, s.start, s.draw);
  for (int64_t t = first; t < first + kEach && t < p.T; ++t) {
    const uint32_t score = scores[t];
    if (score > s.limit) {
      Put(p, before.count + crossing.rows, t, 1.0f);
      ++before.count;
    } else if (draws) {
      const bool takes = sampling::Takes(crossing, score, s.draw);
      if (takes) Put(p, before.count + crossing.rows, t, s.draw.Weight(score));
      crossing.remainder += score * s.draw.draws - (takes ? s.draw.rest : 0);
      crossing.rows += takes ? 1 : 0;
    }
    before.sum += score > s.limit ? 0 : score;
    if (!systematic) cumulated[t] = before.sum;
  }
}

__device__ inline void Take(const SampleRowsParams& p, const uint32_t* scores, const Selection& s) {
  Mass before;
  for (int64_t tile = 0; tile < p.T; tile += kThreads * kEach) {
    const int64_t first = tile + int64_t{threadIdx.x} * kEach;
    Mass mine;  // How many are certain, and the scores of the others.
    for (int64_t t = first; t < first + kEach && t < p.T; ++t) {
      const bool certain = scores[t] > s.limit;
      mine = Add()(mine, {certain ? 1u : 0u, certain ? 0u : scores[t]});
    }
    const Scan scan = BlockScan(mine);
    TakeEach(p, scores, first, Add()(before, scan.before), s);
    before = Add()(before, scan.all);
  }
}

__device__ inline void DrawWithReplacement(const SampleRowsParams& p, const uint32_t* scores,
                                           const Selection& s) {
  const uint64_t* cumulated = static_cast<const uint64_t*>(p.workspace);
  for (uint64_t i = threadIdx.x; i < s.draw.draws; i += kThreads) {
    const Random4 random = RandomBlock(p.site, 1 + i / 2);
    const uint64_t point = sampling::UniformBelow(s.draw.rest, random, static_cast<int>(i % 2));
    int64_t below = -1, row = p.T - 1;  // The first row whose cumulated score is beyond the point.
    while (row - below > 1) {
      const int64_t middle = below + (row - below) / 2;
      if (cumulated[middle] > point) {
        row = middle;
      } else {
        below = middle;
      }
    }
    Put(p, s.certain + i, row, s.draw.Weight(scores[row]));
  }
}

__global__ void __launch_bounds__(kThreads) SampleRowsKernel(SampleRowsParams p) {
  const bool systematic = p.kind == SamplingKind::kSystematic;
  uint32_t* scores = static_cast<uint32_t*>(p.workspace) + (systematic ? 0 : 2 * p.T);
  const uint32_t largest = FillScores(p, scores);
  sampling::CertainSearch search(p.k, largest, MassAbove(p, scores, 0));
  while (!search.done()) search.Tell(MassAbove(p, scores, search.at()));
  const uint64_t certain = search.certain();
  const uint64_t start = sampling::UniformBelow(search.rest(), RandomBlock(p.site, 0), 0);
  const Selection s = {search.limit(), certain, {p.k - certain, search.rest()}, start};
  __syncthreads();  // Scores of other threads are read from here on.
  Take(p, scores, s);
  __syncthreads();  // As are indices and cumulated scores.
  if (s.draw.rest == 0) {
    const int64_t last = certain == 0 ? 0 : p.index[certain - 1];
    for (uint64_t slot = certain + threadIdx.x; slot < static_cast<uint64_t>(p.k);
         slot += kThreads) {
      Put(p, slot, last, 0.0f);
    }
  } else if (!systematic) {
    DrawWithReplacement(p, scores, s);
  }
  if (threadIdx.x == 0 && p.certain != nullptr) *p.certain = static_cast<int64_t>(certain);
}

__global__ void __launch_bounds__(kMaxBlock) TakeAllKernel(SampleRowsParams p) {
  const int64_t t = int64_t{blockIdx.x} * kMaxBlock + threadIdx.x;
  if (t < p.T) Put(p, static_cast<uint64_t>(t), t, 1.0f);
  if (t == 0 && p.certain != nullptr) *p.certain = p.T;
}

template <typename T, int V>
__global__ void __launch_bounds__(kMaxBlock)
    GatherScaledRowsKernel(GatherScaledRowsParams p, ElementGrid grid) {
  ForElements(grid, [&](int64_t row, int64_t pack) {
    const float weight = p.weights[row];
    Floats<V> values = {};
    if (weight != 0.0f) {
      const T* x = static_cast<const T*>(p.x) + p.index[row] * p.x_stride;
      values = Each([&](float v) { return v * weight; }, Load<V>(x + pack * V));
    }
    Store(static_cast<T*>(p.y) + row * p.y_stride + pack * V, values);
  });
}

}  // namespace

Error SampleRows(const SampleRowsParams& p, Stream stream) {
  if (p.k == p.T) return Launch(TakeAllKernel, {Ceil(p.T, kMaxBlock)}, stream, p);
  return Launch(SampleRowsKernel, {1, kThreads}, stream, p);
}

Error GatherScaledRows(const GatherScaledRowsParams& p, Stream stream) {
  const int64_t bytes = SizeOf(p.dtype);
  return ByPacks(
      p.dtype, p.C, {{p.x, p.x_stride, bytes}, {p.y, p.y_stride, bytes}}, [&](auto t, auto v) {
        constexpr int V = decltype(v)::value;
        const ElementGrid grid = ElementGridOf(p.N, p.C / V);
        return Launch(GatherScaledRowsKernel<decltype(t), V>, {grid.blocks}, stream, p, grid);
      });
}

}  // namespace snug::kernels::cuda
