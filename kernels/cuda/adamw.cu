// AdamW on CUDA: many tensors a launch. With moments in 8 bits a warp has a block of 256 elements,
// eight a lane.
#include "kernels/adamw.h"

#include "kernels/adamw_scalars.h"
#include "kernels/cuda/entries.h"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/tensor_list.cuh"

namespace snug::kernels::cuda {
namespace {

using AdamWList = TensorList<AdamWTensor>;

// Moves p[i ..] and its copy, and m and v to the new moments.
template <int V>
__device__ inline void Update(const AdamWTensor& t, const AdamWScalars& s, int64_t i, Floats<V>& m,
                              Floats<V>& v) {
  const Floats<V> g = Load<V>(t.g + i);
  Floats<V> p = Load<V>(t.p + i);
  const float decay = t.decay ? s.decay : 1.0f;
#pragma unroll
  for (int k = 0; k < V; ++k) {
    const float gradient = g.at[k] * s.grad_scale;
    m.at[k] += s.one_minus_beta1 * (gradient - m.at[k]);
    v.at[k] = v.at[k] * s.beta2 + (s.one_minus_beta2 * gradient) * gradient;
    const float denominator = __fdiv_rn(__fsqrt_rn(v.at[k]), s.sqrt_correction2) + s.eps;
    p.at[k] = p.at[k] * decay + __fdiv_rn(s.minus_step_size * m.at[k], denominator);
  }
  Store(t.p + i, p);
  if (t.copy == nullptr) return;
  if (t.copy_dtype == DType::kF16) {
    Store(static_cast<f16*>(t.copy) + i, p);
  } else {
    Store(static_cast<bf16*>(t.copy) + i, p);
  }
}

// Whether packs of V elements may be moved.
__device__ inline bool IsWide(const AdamWTensor& t, int V) {
  return IsAligned(t.p, kAccessBytes) && IsAligned(t.g, kAccessBytes) &&
         IsAligned(t.copy, static_cast<unsigned>(2 * V));
}

__device__ inline AdamWScalars Scaled(AdamWScalars s, const float* grad_factor) {
  if (grad_factor != nullptr) s.grad_scale *= *grad_factor;
  return s;
}

__global__ void __launch_bounds__(kMaxBlock)
    AdamWKernel(const __grid_constant__ AdamWList list, AdamWScalars scalars,
                const float* grad_factor) {
  constexpr int V = 4;
  const AdamWScalars s = Scaled(scalars, grad_factor);
  ForSpans(list, [&](const AdamWTensor& t, int64_t begin, int64_t end) {
    const bool wide = IsWide(t, V) && IsAligned(t.m, kAccessBytes) && IsAligned(t.v, kAccessBytes);
    ForSpanPacks<V>(wide, begin, end, [&](auto width, int64_t i) {
      constexpr int kElements = decltype(width)::value;
      Floats<kElements> m = Load<kElements>(t.m + i), v = Load<kElements>(t.v + i);
      Update(t, s, i, m, v);
      Store(t.m + i, m);
      Store(t.v + i, v);
    });
  });
}

// ---- moments in 8 bits --------------------------------------------------------------------------

constexpr int kLaneElements = static_cast<int>(kCodeBlock) / kWarp;
using LaneMoments = Floats<kLaneElements>;
using Codes = Pack<uint8_t, kLaneElements>;

struct CodeEdges {
  DynamicEdges m = MakeDynamicEdges(true), v = MakeDynamicEdges(false);
};
struct CodeMaps {
  const CodeEdges& edges;
  const float *m_levels, *v_levels;  // (256) each, shared
};

__device__ inline uint32_t LargestBits(const LaneMoments& x) {
  uint32_t bits = 0;
#pragma unroll
  for (int k = 0; k < kLaneElements; ++k) {
    bits = max(bits, __float_as_uint(x.at[k]) & 0x7fffffffu);  // As integers: NaN above all.
  }
#pragma unroll
  for (int lane = kWarp / 2; lane > 0; lane /= 2)
    bits = max(bits, __shfl_xor_sync(~0u, bits, lane));
  return bits;
}

template <bool kSigned>
__device__ inline Codes CodesOf(const DynamicEdges& edges, const LaneMoments& x,
                                uint32_t scale_bits) {
  Codes codes;
  const float inverse = InverseOfScale(scale_bits);
#pragma unroll
  for (int k = 0; k < kLaneElements; ++k) {
    codes.at[k] = DynamicCode<kSigned>(edges, inverse == 0.0f ? 0.0f : x.at[k] * inverse);
  }
  return codes;
}

// Of a lane's `count` elements; all of them where `wide`.
__device__ inline Codes LoadCodes(const uint8_t* from, int count, bool wide) {
  if (wide) return LoadPack<kLaneElements>(from);
  Codes codes = {};
#pragma unroll
  for (int k = 0; k < kLaneElements; ++k) {
    if (k < count) codes.at[k] = from[k];
  }
  return codes;
}
__device__ inline void StoreCodes(const Codes& codes, uint8_t* to, int count, bool wide) {
  if (wide) {
    StorePack(to, codes);
    return;
  }
#pragma unroll
  for (int k = 0; k < kLaneElements; ++k) {
    if (k < count) to[k] = codes.at[k];
  }
}

__device__ inline LaneMoments Decode(const float* levels, const Codes& codes, float scale,
                                     int count) {
  LaneMoments x = {};
#pragma unroll
  for (int k = 0; k < kLaneElements; ++k) {
    if (k < count) x.at[k] = levels[codes.at[k]] * scale;
  }
  return x;
}

// Elements [begin, begin + 256) of a tensor, of which the warp's lane has `count` from i on.
__device__ inline void UpdateBlock(const AdamWTensor& t, const AdamWScalars& s,
                                   const CodeMaps& maps, int64_t begin, bool wide) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t block = begin / kCodeBlock, i = begin + lane * kLaneElements;
  const int64_t left = t.n - i;
  const int count = left < 0 ? 0 : left < kLaneElements ? static_cast<int>(left) : kLaneElements;
  wide = wide && count == kLaneElements;
  LaneMoments m =
      Decode(maps.m_levels, LoadCodes(t.codes.m + i, count, wide), t.codes.m_scale[block], count);
  LaneMoments v =
      Decode(maps.v_levels, LoadCodes(t.codes.v + i, count, wide), t.codes.v_scale[block], count);
  if (wide) {
    Update(t, s, i, m, v);
  } else {
#pragma unroll
    for (int k = 0; k < kLaneElements; ++k) {
      if (k >= count) break;
      Floats<1> one_m = {{m.at[k]}}, one_v = {{v.at[k]}};
      Update(t, s, i + k, one_m, one_v);
      m.at[k] = one_m.at[0];
      v.at[k] = one_v.at[0];
    }
  }
  const uint32_t m_bits = LargestBits(m), v_bits = LargestBits(v);
  StoreCodes(CodesOf<true>(maps.edges.m, m, m_bits), t.codes.m + i, count, wide);
  StoreCodes(CodesOf<false>(maps.edges.v, v, v_bits), t.codes.v + i, count, wide);
  __syncwarp();  // Every lane has read the scales: shuffles alone do not order memory.
  if (lane != 0) return;
  t.codes.m_scale[block] = __uint_as_float(m_bits);
  t.codes.v_scale[block] = __uint_as_float(v_bits);
}

__global__ void __launch_bounds__(kMaxBlock, kFewBlocks)
    AdamWCodedKernel(const __grid_constant__ AdamWList list, AdamWScalars scalars,
                     const float* grad_factor, const __grid_constant__ CodeEdges edges) {
  static_assert(kMaxBlock == 256, "a thread makes a level of each map");
  __shared__ float m_levels[256], v_levels[256];
  m_levels[threadIdx.x] = DynamicLevel(true, static_cast<int>(threadIdx.x));
  v_levels[threadIdx.x] = DynamicLevel(false, static_cast<int>(threadIdx.x));
  __syncthreads();
  const AdamWScalars s = Scaled(scalars, grad_factor);
  const CodeMaps maps = {edges, m_levels, v_levels};
  const int warp = static_cast<int>(threadIdx.x) / kWarp, warps = kMaxBlock / kWarp;
  ForSpans(list, [&](const AdamWTensor& t, int64_t begin, int64_t end) {
    const bool wide =
        IsWide(t, kLaneElements) && IsAligned(t.codes.m, 8) && IsAligned(t.codes.v, 8);
    for (int64_t block = begin + warp * kCodeBlock; block < end; block += warps * kCodeBlock) {
      UpdateBlock(t, s, maps, block, wide);
    }
  });
}

}  // namespace

Error AdamW(const AdamWParams& p, Stream stream) {
  static_assert(kSpanElements % kCodeBlock == 0, "a span is whole blocks");
  const AdamWScalars scalars = ScalarsOf(p);
  const auto coded = [](const AdamWTensor& t) { return t.codes.m != nullptr; };
  const Error error = ForLists(
      p.tensors, p.count, [&](const AdamWTensor& t) { return !coded(t); },
      [&](const AdamWList& list) {
        return Launch(AdamWKernel, {list.spans()}, stream, list, scalars, p.grad_factor);
      });
  if (!error.ok()) return error;
  return ForLists(p.tensors, p.count, coded, [&](const AdamWList& list) {
    return Launch(AdamWCodedKernel, {list.spans()}, stream, list, scalars, p.grad_factor,
                  CodeEdges{});
  });
}

}  // namespace snug::kernels::cuda
