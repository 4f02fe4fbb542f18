// Norms with xhat as codes, on CUDA. A row is read once: its packs of eight stay in registers.
// Types are known when running alone, so that there are few kernels to compile.
#include "kernels/quantized_norm.h"

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/entries.h"
#include "kernels/cuda/quantized.cuh"
#include "kernels/cuda/team.cuh"

namespace snug::kernels::cuda {
namespace {

using Eight = Floats<kEight>;

// Packs of two operands that a thread holds in the backward; as for kHeld, others are read again.
constexpr int kHeldPairs = 2;

// Of a type that is known when running.
template <bool kWide>
__device__ inline Eight LoadEightAny(const void* row, DType dtype, const EightAt& at) {
  if (dtype == DType::kF32) return LoadEight<kWide>(static_cast<const float*>(row), at);
  if (dtype == DType::kBF16) return LoadEight<kWide>(static_cast<const bf16*>(row), at);
  return LoadEight<kWide>(static_cast<const f16*>(row), at);
}
template <bool kWide>
__device__ inline void StoreEightAny(void* row, DType dtype, const EightAt& at, const Eight& x) {
  if (dtype == DType::kF32) return StoreEight<kWide>(static_cast<float*>(row), at, x);
  if (dtype == DType::kBF16) return StoreEight<kWide>(static_cast<bf16*>(row), at, x);
  return StoreEight<kWide>(static_cast<f16*>(row), at, x);
}
__device__ inline const void* RowAt(const void* x, DType dtype, int64_t elements) {
  return static_cast<const char*>(x) + elements * (dtype == DType::kF32 ? 4 : 2);
}
__device__ inline void* RowAt(void* x, DType dtype, int64_t elements) {
  return static_cast<char*>(x) + elements * (dtype == DType::kF32 ? 4 : 2);
}

// The sum of f(element) over the elements that are there.
template <typename F>
__device__ inline float SumOf(const EightAt& at, const Eight& x, const F& f) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    if (i < at.left()) sum += f(x.at[i]);
  }
  return sum;
}

// x as a type holds it.
template <typename T>
__device__ inline Eight Rounded(const Eight& x) {
  Pack<T, kEight> pack;
#pragma unroll
  for (int i = 0; i < kEight; ++i) Round(x.at[i], pack.at[i]);
  return Widen(pack);
}
__device__ inline Eight RoundedTo(DType dtype, const Eight& x) {
  if (dtype == DType::kBF16) return Rounded<bf16>(x);
  if (dtype == DType::kF16) return Rounded<f16>(x);
  return x;
}

// The input of a pack: x, or h, which is written.
template <bool kWide>
__device__ inline Eight Input(const NormalizeForwardParams& p, const EightAt& at) {
  const DType type = p.wide ? DType::kF32 : p.dtype;
  if (p.residual == nullptr) {
    return LoadEightAny<kWide>(RowAt(p.x, type, at.row * p.x_stride), type, at);
  }
  const Eight x = LoadEightAny<kWide>(RowAt(p.x, p.dtype, at.row * p.x_stride), p.dtype, at);
  const Eight residual =
      LoadEightAny<kWide>(RowAt(p.residual, type, at.row * p.residual_stride), type, at);
  const Eight h = RoundedTo(type, Each([](float a, float b) { return a + b; }, residual, x));
  StoreEightAny<kWide>(RowAt(p.h, type, at.row * p.h_stride), type, at, h);
  return h;
}
// The same, once more: h where it was written, else x, which nothing has been written over yet.
template <bool kWide>
__device__ inline Eight InputAgain(const NormalizeForwardParams& p, const EightAt& at) {
  const DType type = p.wide ? DType::kF32 : p.dtype;
  const bool h = p.residual != nullptr;
  const int64_t stride = h ? p.h_stride : p.x_stride;
  return LoadEightAny<kWide>(RowAt(h ? p.h : p.x, type, at.row * stride), type, at);
}

template <bool kWide, typename Params>
__device__ inline Eight Factors(const Params& p, const EightAt& at) {
  return Each([&](float g) { return p.offset + g; },
              LoadEightAny<kWide>(p.gamma, p.gamma_dtype, at));
}

template <bool kWide, bool kBlock>
__global__ void __launch_bounds__(kMaxBlock, kFewBlocks)
    ForwardKernel(QuantizedNormForwardParams params, int64_t packs) {
  const NormalizeForwardParams& p = params.norm;
  const Team<kBlock> team;
  const float C = static_cast<float>(p.C);
  for (int64_t row = team.row; row < p.N; row += team.rows_apart) {
    Eight held[kHeld];
    float sum = 0.0f, squares = 0.0f;
    ForPacks(team, packs, [&](int k, int64_t pack) {
      const EightAt at = {row, p.C, pack * kEight};
      const Eight x = Input<kWide>(p, at);
      if (k < kHeld) held[k] = x;
      sum += SumOf(at, x, [](float f) { return f; });
      squares += SumOf(at, x, [](float f) { return f * f; });
    });
    float mean = 0.0f, drift = 0.0f;
    if (p.norm == Norm::kLayer) {
      mean = team.Sum(sum) / C;
      sum = squares = 0.0f;
      ForPacks(team, packs, [&](int k, int64_t pack) {
        const EightAt at = {row, p.C, pack * kEight};
        const Eight x = k < kHeld ? held[k] : InputAgain<kWide>(p, at);
        sum += SumOf(at, x, [&](float f) { return f - mean; });
        squares += SumOf(at, x, [&](float f) { return (f - mean) * (f - mean); });
      });
      drift = team.Sum(sum) / C;
    }
    const float variance = fmaxf(team.Sum(squares) / C - drift * drift, 0.0f);
    const float r = __fdiv_rn(1.0f, __fsqrt_rn(variance + p.eps));
    if (team.thread == 0) p.r[row] = r;
    ForPacks(team, packs, [&](int k, int64_t pack) {
      const EightAt at = {row, p.C, pack * kEight};
      const Eight x = k < kHeld ? held[k] : InputAgain<kWide>(p, at);
      const Eight xhat =
          RoundedTo(p.dtype, Each([&](float f) { return (f - mean - drift) * r; }, x));
      QuantizeEight<kWide>(params.xhat, params.dither, at, xhat);
      if (at.left() <= 0) return;
      Eight z = Each([](float a, float b) { return a * b; }, xhat, Factors<kWide>(p, at));
      if (p.beta != nullptr) {
        z = Each([](float a, float b) { return a + b; }, z,
                 LoadEightAny<kWide>(p.beta, p.gamma_dtype, at));
      }
      StoreEightAny<kWide>(RowAt(p.z, p.dtype, row * p.z_stride), p.dtype, at, z);
    });
  }
}

// A warp with a row of its own needs some registers more than two blocks leave it.
template <bool kWide, bool kBlock>
__global__ void __launch_bounds__(kMaxBlock, kBlock ? kFewBlocks : 1)
    BackwardKernel(QuantizedNormBackwardParams params, int64_t packs) {
  const NormalizeBackwardParams& p = params.norm;
  const Team<kBlock> team;
  const DType type = p.wide ? DType::kF32 : p.dtype;
  for (int64_t row = team.row; row < p.N; row += team.rows_apart) {
    const void* dxhat = RowAt(p.dxhat, p.dtype, row * p.dxhat_stride);
    void* dx = RowAt(p.dx, type, row * p.dx_stride);
    const auto gradient = [&](const EightAt& at) {
      const Eight g = LoadEightAny<kWide>(dxhat, p.dtype, at);
      if (p.gamma == nullptr) return g;
      return Each([](float a, float b) { return a * b; }, g, Factors<kWide>(p, at));
    };
    Eight held_g[kHeldPairs], held_x[kHeldPairs];
    float dot = 0.0f, sum = 0.0f;
    ForPacks(team, packs, [&](int k, int64_t pack) {
      const EightAt at = {row, p.C, pack * kEight};
      const Eight g = gradient(at), x = DequantizeEight<kWide>(params.xhat, at);
      if (k < kHeldPairs) {
        held_g[k] = g;
        held_x[k] = x;
      }
      sum += SumOf(at, g, [](float f) { return f; });
      dot +=
          SumOf(at, Each([](float a, float b) { return a * b; }, g, x), [](float f) { return f; });
    });
    dot = team.Sum(dot) / static_cast<float>(p.C);
    const float shift = p.norm == Norm::kRms ? 0.0f : team.Sum(sum) / static_cast<float>(p.C);
    const float r = p.r[row];
    ForPacks(team, packs, [&](int k, int64_t pack) {
      const EightAt at = {row, p.C, pack * kEight};
      const Eight g = k < kHeldPairs ? held_g[k] : gradient(at);
      const Eight x = k < kHeldPairs ? held_x[k] : DequantizeEight<kWide>(params.xhat, at);
      Eight v = Each([&](float a, float b) { return ((a - shift) - b * dot) * r; }, g, x);
      if (p.accumulate) {
        v = Each([](float a, float b) { return a + b; }, LoadEightAny<kWide>(dx, type, at), v);
      }
      StoreEightAny<kWide>(dx, type, at, v);
    });
  }
}

template <bool kWide>
__global__ void __launch_bounds__(kMaxBlock, kFewBlocks)
    SumsKernel(QuantizedNormSumsParams params, ColumnGrid grid) {
  const AffineBackwardParams& p = params.affine;
  float* const results[] = {p.dgamma, p.dbeta};
  SumColumnSets<kEight>(grid, p.workspace, results, [&](int64_t row, int64_t c, Eight(&terms)[2]) {
    const EightAt at = {row, p.C, c};
    terms[1] = LoadEightAny<kWide>(RowAt(p.dz, p.dtype, row * p.dz_stride), p.dtype, at);
    terms[0] = Each([](float a, float b) { return a * b; }, terms[1],
                    DequantizeEight<kWide>(params.xhat, at));
  });
}

// A warp a row, or a block of threads, of which each holds `held` packs.
template <typename Params>
Error LaunchRowsOf(void (*by_warp)(Params, int64_t), void (*by_block)(Params, int64_t),
                   const Params& p, int held, Stream stream) {
  const int64_t packs = EightsOf(p.norm.C);
  if (packs <= kWarp * held) {
    return Launch(by_warp, {Ceil(p.norm.N, kMaxBlock / kWarp)}, stream, p, packs);
  }
  int threads = kWarp;
  while (threads < kMaxBlock && threads * held < packs) threads *= 2;
  return Launch(by_block, {p.norm.N, threads}, stream, p, packs);
}

}  // namespace

Error QuantizedNormForward(const QuantizedNormForwardParams& params, Stream stream) {
  const NormalizeForwardParams& p = params.norm;
  const int64_t bytes = SizeOf(p.dtype), input = p.wide ? 4 : bytes;
  bool wide = DividesCodes(params.xhat, p.C);
  for (const Operand& x :
       {Operand{p.x, p.x_stride, p.residual == nullptr ? input : bytes},
        Operand{p.residual, p.residual_stride, input},
        Operand{p.residual == nullptr ? nullptr : p.h, p.h_stride, input},
        Operand{p.z, p.z_stride, bytes}, Operand{p.gamma, 0, SizeOf(p.gamma_dtype)},
        Operand{p.beta, 0, SizeOf(p.gamma_dtype)}}) {
    wide = wide && Divides(x, p.C, kEight);
  }
  return wide ? LaunchRowsOf(ForwardKernel<true, false>, ForwardKernel<true, true>, params, kHeld,
                             stream)
              : LaunchRowsOf(ForwardKernel<false, false>, ForwardKernel<false, true>, params, kHeld,
                             stream);
}

Error QuantizedNormBackward(const QuantizedNormBackwardParams& params, Stream stream) {
  const NormalizeBackwardParams& p = params.norm;
  const bool wide = DividesCodes(params.xhat, p.C) &&
                    Divides({p.dxhat, p.dxhat_stride, SizeOf(p.dtype)}, p.C, kEight) &&
                    Divides({p.dx, p.dx_stride, p.wide ? 4 : SizeOf(p.dtype)}, p.C, kEight) &&
                    Divides({p.gamma, 0, SizeOf(p.gamma_dtype)}, p.C, kEight);
  return wide ? LaunchRowsOf(BackwardKernel<true, false>, BackwardKernel<true, true>, params,
                             kHeldPairs, stream)
              : LaunchRowsOf(BackwardKernel<false, false>, BackwardKernel<false, true>, params,
                             kHeldPairs, stream);
}

Error QuantizedNormSums(const QuantizedNormSumsParams& params, Stream stream) {
  const AffineBackwardParams& p = params.affine;
  const ColumnGrid grid = ColumnGridOf(p.N, p.C, kEight);
  const bool wide =
      DividesCodes(params.xhat, p.C) && Divides({p.dz, p.dz_stride, SizeOf(p.dtype)}, p.C, kEight);
  const Error error =
      Launch(wide ? SumsKernel<true> : SumsKernel<false>, {grid.blocks()}, stream, params, grid);
  if (!error.ok()) return error;
  float* const results[] = {p.dgamma, p.dbeta};
  return AddPartSets(grid, p.workspace, results, p.accumulate, stream);
}

}  // namespace snug::kernels::cuda
