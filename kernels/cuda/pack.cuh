// Neighbouring elements, moved 16 bytes at a time where pointers and strides allow it, else one by
// one: the same kernel, instantiated for packs of 16 bytes and of one element.
#ifndef KERNELS_CUDA_PACK_CUH_
#define KERNELS_CUDA_PACK_CUH_

#include <cstdint>

#include "kernels/types.h"

namespace snug::kernels::cuda {

inline constexpr int kAccessBytes = 16;

template <typename T, int V>
struct alignas(sizeof(T) * V) Pack {
  T at[V];
};

template <typename T>
inline constexpr int kWide = kAccessBytes / static_cast<int>(sizeof(T));

__device__ inline float Widen(float x) { return x; }
__device__ inline float Widen(bf16 x) { return ToFloat(x); }
template <typename T>
__device__ inline T Narrow(float x);
template <>
__device__ inline float Narrow<float>(float x) {
  return x;
}
template <>
__device__ inline bf16 Narrow<bf16>(float x) {
  return ToBf16(x);
}

// V elements as fp32, in registers.
template <int V>
struct Floats {
  float at[V];
};

template <int V, typename T>
__device__ inline Floats<V> Load(const T* x) {
  const Pack<T, V> pack = *reinterpret_cast<const Pack<T, V>*>(x);
  Floats<V> values;
#pragma unroll
  for (int i = 0; i < V; ++i) values.at[i] = Widen(pack.at[i]);
  return values;
}

template <int V, typename T>
__device__ inline void Store(T* y, const Floats<V>& values) {
  Pack<T, V> pack;
#pragma unroll
  for (int i = 0; i < V; ++i) pack.at[i] = Narrow<T>(values.at[i]);
  *reinterpret_cast<Pack<T, V>*>(y) = pack;
}

// Whether rows of C elements of `bytes` each, `stride` elements apart, divide into 16-byte packs.
inline bool Wide(const void* x, int64_t C, int64_t stride, int64_t bytes) {
  return x == nullptr || (reinterpret_cast<uintptr_t>(x) % kAccessBytes == 0 &&
                          C * bytes % kAccessBytes == 0 && stride * bytes % kAccessBytes == 0);
}

// body(float{}) or body(bf16{}): from run-time types to template arguments.
template <typename Body>
inline Error ByType(DType dtype, const Body& body) {
  return dtype == DType::kF32 ? body(float{}) : body(bf16{});
}

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_PACK_CUH_
