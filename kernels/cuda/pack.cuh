// Neighbouring elements, moved 16 bytes at a time where pointers and strides allow it, else one by
// one: the same kernel, instantiated for packs of 16 bytes and of one element.
#ifndef KERNELS_CUDA_PACK_CUH_
#define KERNELS_CUDA_PACK_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>

#include "kernels/by_type.h"
#include "kernels/cuda/operand.cuh"
#include "kernels/types.h"

namespace snug::kernels::cuda {

// V elements as they lie in memory; more than 16 bytes are several accesses.
template <typename T, int V>
struct alignas(sizeof(T) * V < kAccessBytes ? sizeof(T) * V : kAccessBytes) Pack {
  T at[V];
};

// V elements as fp32, in registers.
template <int V>
struct Floats {
  float at[V];
};

// ---- number types: one instruction each ---------------------------------------------------------

__device__ inline float Widen(float x) { return x; }
__device__ inline float Widen(bf16 x) { return ToFloat(x); }
__device__ inline float Widen(f16 x) { return __half2float(__ushort_as_half(x.bits)); }
__device__ inline void Round(float x, float& y) { y = x; }
__device__ inline void Round(float x, bf16& y) {
  y.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
}
__device__ inline void Round(float x, f16& y) { y.bits = __half_as_ushort(__float2half_rn(x)); }

template <typename T, int V>
__device__ inline Floats<V> Widen(const Pack<T, V>& pack) {
  Floats<V> values;
#pragma unroll
  for (int i = 0; i < V; ++i) values.at[i] = Widen(pack.at[i]);
  return values;
}

// ---- memory -------------------------------------------------------------------------------------

template <int V, typename T>
__device__ inline Pack<T, V> LoadPack(const T* x) {
  return *reinterpret_cast<const Pack<T, V>*>(x);
}
template <int V, typename T>
__device__ inline Floats<V> Load(const T* x) {
  return Widen(LoadPack<V>(x));
}
// V elements from x[i] on, of a type that is known when running: for what is small and read often.
template <int V>
__device__ inline Floats<V> LoadAny(const void* x, DType dtype, int64_t i) {
  if (dtype == DType::kF32) return Load<V>(static_cast<const float*>(x) + i);
  if (dtype == DType::kBF16) return Load<V>(static_cast<const bf16*>(x) + i);
  return Load<V>(static_cast<const f16*>(x) + i);
}

// Words of W, as many as the pack has, each by one instruction. A store with a hint, because nvcc
// splits the assignment of 16 bytes into four of 4 in some kernels; kernels/access_widths_test
// reads from the machine code that it does not.
template <typename W, int V, typename T>
__device__ inline void StoreWords(T* y, const Pack<T, V>& pack) {
  constexpr int kWords = static_cast<int>(sizeof(pack) / sizeof(W));
  W words[kWords];
  memcpy(words, &pack, sizeof(pack));
#pragma unroll
  for (int i = 0; i < kWords; ++i) __stcg(reinterpret_cast<W*>(y) + i, words[i]);
}
// The one way in which kernels write a pack.
template <int V, typename T>
__device__ inline void StorePack(T* y, const Pack<T, V>& pack) {
  if constexpr (sizeof(pack) % sizeof(uint4) == 0) {
    StoreWords<uint4>(y, pack);
  } else if constexpr (sizeof(pack) == sizeof(uint2)) {
    StoreWords<uint2>(y, pack);
  } else {
    *reinterpret_cast<Pack<T, V>*>(y) = pack;
  }
}
template <int V, typename T>
__device__ inline Pack<T, V> Narrow(const Floats<V>& values) {
  Pack<T, V> pack;
#pragma unroll
  for (int i = 0; i < V; ++i) Round(values.at[i], pack.at[i]);
  return pack;
}
template <int V, typename T>
__device__ inline void Store(T* y, const Floats<V>& values) {
  StorePack(y, Narrow<V, T>(values));
}

template <int V>
__device__ inline void StoreAny(void* y, DType dtype, int64_t i, const Floats<V>& values) {
  if (dtype == DType::kF32) return Store(static_cast<float*>(y) + i, values);
  if (dtype == DType::kBF16) return Store(static_cast<bf16*>(y) + i, values);
  return Store(static_cast<f16*>(y) + i, values);
}

// f(a[i], b[i], ...) for each i of V.
template <int V, typename F, typename... Rest>
__device__ inline Floats<V> Each(const F& f, const Floats<V>& a, const Rest&... rest) {
  Floats<V> result;
#pragma unroll
  for (int i = 0; i < V; ++i) result.at[i] = f(a.at[i], rest.at[i]...);
  return result;
}

// ---- what a launch decides ----------------------------------------------------------------------

// body(T{}, Constant<V>{}): T for `dtype`, V its elements in 16 bytes where all operands' rows of C
// elements divide into such packs, else 1.
template <typename Body>
inline Error ByPacks(DType dtype, int64_t C, std::initializer_list<Operand> operands,
                     const Body& body) {
  return ByType(dtype, [&](auto t) {
    constexpr int kWide = kAccessBytes / static_cast<int>(sizeof(t));
    for (const Operand& x : operands) {
      if (!Divides(x, C, kWide)) return body(t, Constant<1>{});
    }
    return body(t, Constant<kWide>{});
  });
}

// body(Constant<V>{}) for operands of any types, mixed: V elements of the narrowest in 16 bytes
// where all rows divide into such packs, else 1.
template <typename Body>
inline Error ByWidth(int64_t C, std::initializer_list<Operand> operands, const Body& body) {
  bool half = false;
  for (const Operand& x : operands) half = half || x.bytes < 4;
  for (const Operand& x : operands) {
    if (!Divides(x, C, half ? 8 : 4)) return body(Constant<1>{});
  }
  return half ? body(Constant<8>{}) : body(Constant<4>{});
}

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_PACK_CUH_
