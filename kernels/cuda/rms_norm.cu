// Backward of the fused RMS norm on CUDA, dx and dgamma in one kernel: dz and x are read once. A
// block has a part of the rows, and each of its threads the same columns of all of them, whose
// gradient of gamma stays in its registers.
#include "kernels/rms_norm.h"

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/entries.h"
#include "kernels/cuda/pack.cuh"

namespace snug::kernels::cuda {
namespace {

// One block of 512 threads of at most 128 registers fills a multiprocessor: there are no more parts
// than a large GPU has of these (kernels/column_sums.h).
constexpr int kThreads = 512;
// Packs of dz, and as many of x, that a thread has in flight: of one row, or of rows apart.
constexpr int kPairs = 4;
constexpr int kMostPacks = 2;  // Of one row: the sums of more would spill.
// With fewer parts too many multiprocessors would have nothing to do.
constexpr int64_t kLeastParts = 32;

// A block's rows, and how its threads share them: `team` threads (a power of two) to a row.
struct RowParts {
  ColumnGrid grid;
  int team = kThreads;
};

// The sum of each of R numbers over the threads of a team, in each of them. All threads of the
// block call it.
template <int R>
__device__ inline void TeamSum(float (&x)[R], int team) {
  const int lanes = team < kWarp ? team : kWarp;
  for (int lane = lanes / 2; lane > 0; lane /= 2) {
#pragma unroll
    for (int k = 0; k < R; ++k) x[k] += __shfl_xor_sync(~0u, x[k], lane);
  }
  if (team <= kWarp) return;
  __shared__ float warps[R][kThreads / kWarp];
  const int warp = static_cast<int>(threadIdx.x) / kWarp, first = warp & ~(team / kWarp - 1);
  __syncthreads();  // The sums before have been read by all.
  if (threadIdx.x % kWarp == 0) {
#pragma unroll
    for (int k = 0; k < R; ++k) warps[k][warp] = x[k];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < R; ++k) {
    x[k] = 0.0f;
    for (int i = 0; i < team / kWarp; ++i) x[k] += warps[k][first + i];
  }
}

// The part's sums of columns, where several teams have some of each: added in the teams' order.
template <int V>
__device__ inline void AddTeams(const RmsNormBackwardParams& p, const RowParts& parts,
                                const Floats<V>& sum) {
  __shared__ float sums[kThreads * V];
  float* part = static_cast<float*>(p.workspace) + blockIdx.x * p.C;
#pragma unroll
  for (int i = 0; i < V; ++i) sums[static_cast<int>(threadIdx.x) * V + i] = sum.at[i];
  __syncthreads();
  for (int64_t c = threadIdx.x; c < p.C; c += kThreads) {
    float total = 0.0f;
    for (int team = 0; team < kThreads / parts.team; ++team) {
      total += sums[team * parts.team * V + static_cast<int>(c)];
    }
    part[c] = total;
  }
}

// kPacks: of a row that a thread has.
template <typename T, int V, int kPacks>
__global__ void __launch_bounds__(kThreads, 1)
    RmsNormBackwardKernel(RmsNormBackwardParams p, RowParts parts) {
  constexpr int kRows = kPairs / kPacks;
  const int team = parts.team, teams = kThreads / team;
  const int thread = static_cast<int>(threadIdx.x) & (team - 1);
  const int64_t mine = static_cast<int>(threadIdx.x) / team;
  const int64_t begin = blockIdx.x * parts.grid.rows_per_part;
  const int64_t end = min(begin + parts.grid.rows_per_part, p.N);
  const auto column = [&](int j) { return (int64_t{thread} + int64_t{j} * team) * V; };
  Floats<V> sums[kPacks] = {};
  for (int64_t first = begin; first < end; first += int64_t{teams} * kRows) {
    Pack<T, V> dz[kRows][kPacks] = {}, x[kRows][kPacks] = {};
    float r[kRows], dot[kRows];
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      const int64_t row = first + mine + int64_t{k} * teams;
      r[k] = row < end ? p.r[row] : 0.0f;
#pragma unroll
      for (int j = 0; j < kPacks; ++j) {
        if (row >= end || column(j) >= p.C) continue;
        dz[k][j] = LoadPack<V>(static_cast<const T*>(p.dz) + row * p.dz_stride + column(j));
        x[k][j] = LoadPack<V>(static_cast<const T*>(p.x) + row * p.x_stride + column(j));
      }
    }
    // What dxhat and dx have of a column.
    const auto factor = [&](int j) {
      const Floats<V> gamma = LoadAny<V>(p.gamma, p.gamma_dtype, column(j));
      return Each([&](float g) { return p.offset + g; }, gamma);
    };
#pragma unroll
    for (int k = 0; k < kRows; ++k) dot[k] = 0.0f;
#pragma unroll
    for (int j = 0; j < kPacks; ++j) {
      if (column(j) >= p.C) continue;
      const Floats<V> f = factor(j);
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
#pragma unroll
        for (int i = 0; i < V; ++i) {
          const float xhat = Widen(x[k][j].at[i]) * r[k], g = Widen(dz[k][j].at[i]);
          sums[j].at[i] += g * xhat;
          dot[k] += g * f.at[i] * xhat;
        }
      }
    }
    TeamSum(dot, team);
#pragma unroll
    for (int j = 0; j < kPacks; ++j) {
      if (column(j) >= p.C) continue;
      const Floats<V> f = factor(j);
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
        const int64_t row = first + mine + int64_t{k} * teams;
        if (row >= end) continue;
        const float mean = dot[k] / static_cast<float>(p.C);
        T* dx = static_cast<T*>(p.dx) + row * p.dx_stride + column(j);
        Floats<V> v;
#pragma unroll
        for (int i = 0; i < V; ++i) {
          const float xhat = Widen(x[k][j].at[i]) * r[k];
          v.at[i] = (Widen(dz[k][j].at[i]) * f.at[i] - xhat * mean) * r[k];
        }
        if (p.accumulate_dx) v = Each([](float a, float b) { return a + b; }, v, Load<V>(dx));
        Store(dx, v);
      }
    }
  }
  if (teams > 1) return AddTeams(p, parts, sums[0]);
  float* part = static_cast<float*>(p.workspace) + blockIdx.x * p.C;
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    if (column(j) < p.C) Store(part + column(j), sums[j]);
  }
}

// The elements that a thread moves as one; 1: not all rows divide into packs of 16 bytes.
int WidthOf(const RmsNormBackwardParams& p) {
  const int64_t bytes = SizeOf(p.dtype);
  const int V = kAccessBytes / static_cast<int>(bytes);
  const Operand operands[] = {{p.dz, p.dz_stride, bytes},
                              {p.x, p.x_stride, bytes},
                              {p.dx, p.dx_stride, bytes},
                              {p.workspace, p.C, sizeof(float)},
                              {p.gamma, 0, SizeOf(p.gamma_dtype)}};
  for (const Operand& x : operands) {
    if (!Divides(x, p.C, V)) return 1;
  }
  return V;
}

template <typename T>
Error LaunchParts(const RmsNormBackwardParams& p, const RowParts& parts, Stream stream) {
  constexpr int V = kAccessBytes / static_cast<int>(sizeof(T));
  const int64_t packs = p.C / V;
  const Grid grid = {parts.grid.parts, kThreads};
  if (packs <= kThreads) return Launch(RmsNormBackwardKernel<T, V, 1>, grid, stream, p, parts);
  return Launch(RmsNormBackwardKernel<T, V, kMostPacks>, grid, stream, p, parts);
}

}  // namespace

bool FitsRmsNormBackward(const RmsNormBackwardParams& p) {
  const int V = WidthOf(p);
  return V > 1 && p.C / V <= int64_t{kMostPacks} * kThreads && ColumnParts(p.N) >= kLeastParts;
}

Error RmsNormBackward(const RmsNormBackwardParams& p, Stream stream) {
  const int V = WidthOf(p);
  RowParts parts = {ColumnGridOf(p.N, p.C, V)};
  while (parts.team > 1 && parts.team / 2 >= p.C / V) parts.team /= 2;
  const Error error =
      ByType(p.dtype, [&](auto t) { return LaunchParts<decltype(t)>(p, parts, stream); });
  if (!error.ok()) return error;
  return AddParts(parts.grid, p.workspace, p.dgamma, p.accumulate_dgamma, stream);
}

}  // namespace snug::kernels::cuda
