// Stands in for the toolkit's header when .cu files are compiled as C++ for the emulator: the part
// of the language and of the runtime that kernels/ uses. C++17, as .cu files are.
#ifndef TESTS_CUDA_ON_CPU_INCLUDE_CUDA_RUNTIME_H_
#define TESTS_CUDA_ON_CPU_INCLUDE_CUDA_RUNTIME_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <tuple>

#include "tests/cuda_on_cpu/emulator.h"
#include "tests/cuda_on_cpu/memory_watch.h"

// ---- the language -------------------------------------------------------------------------------
#define __CUDA_ON_CPU__ 1
#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
// Blocks run one after another, so one copy serves them all; the watch knows it as shared memory.
#define __shared__ static
#define __align__(bytes) alignas(bytes)

static const snug::cuda_on_cpu::Index3& threadIdx = snug::cuda_on_cpu::here.thread;
static const snug::cuda_on_cpu::Index3& blockIdx = snug::cuda_on_cpu::here.block;
static const snug::cuda_on_cpu::Index3& blockDim = snug::cuda_on_cpu::here.block_size;
static const snug::cuda_on_cpu::Index3& gridDim = snug::cuda_on_cpu::here.grid_size;
inline constexpr int warpSize = 32;

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

// ---- vectors ------------------------------------------------------------------------------------
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(4) uchar4 {
  unsigned char x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// ---- arithmetic ---------------------------------------------------------------------------------
// Rounded once each and never contracted: emulated sources are compiled with -ffp-contract=off.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float a) { return 1.0f / std::sqrt(a); }
inline float __expf(float a) { return std::exp(a); }
inline float __logf(float a) { return std::log(a); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline int __float2int_rn(float a) { return static_cast<int>(std::nearbyint(a)); }
inline int __float2int_rd(float a) { return static_cast<int>(std::floor(a)); }
inline int __popc(unsigned a) { return __builtin_popcount(a); }
inline int __clz(int a) { return a == 0 ? 32 : __builtin_clz(static_cast<unsigned>(a)); }
inline int __ffs(int a) { return __builtin_ffs(a); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(uint64_t{a} * b >> 32);
}
template <typename To, typename From>
inline To SnugBitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}
inline unsigned __float_as_uint(float a) { return SnugBitCast<unsigned>(a); }
inline float __uint_as_float(unsigned a) { return SnugBitCast<float>(a); }
inline int __float_as_int(float a) { return SnugBitCast<int>(a); }
inline float __int_as_float(int a) { return SnugBitCast<float>(a); }
template <typename T>
inline T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
inline T max(T a, T b) {
  return a < b ? b : a;
}

// ---- memory -------------------------------------------------------------------------------------
// Hints only; the access itself is what the watch sees.
template <typename T>
inline T __ldg(const T* p) {
  return *p;
}
template <typename T>
inline T __ldcs(const T* p) {
  return *p;
}
template <typename T>
inline void __stcs(T* p, T value) {
  *p = value;
}

// ---- threads ------------------------------------------------------------------------------------
// The line is the caller's: default arguments are evaluated there. What an intrinsic does itself is
// not watched.
#define SNUG_UNWATCHED __attribute__((no_sanitize("thread")))
inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  snug::cuda_on_cpu::BlockBarrier(false, {file, line});
}
inline int __syncthreads_count(int vote, const char* file = __builtin_FILE(),
                               int line = __builtin_LINE()) {
  return snug::cuda_on_cpu::BlockBarrier(vote != 0, {file, line});
}
inline int __syncthreads_or(int vote, const char* file = __builtin_FILE(),
                            int line = __builtin_LINE()) {
  return snug::cuda_on_cpu::BlockBarrier(vote != 0, {file, line}) > 0;
}
inline void __syncwarp(unsigned mask = ~0u, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
  snug::cuda_on_cpu::WarpExchange("__syncwarp", mask, 0, {file, line});
}

// The value of lane `from`, or one's own where that is outside of the group of `width` lanes.
template <typename T>
SNUG_UNWATCHED inline T SnugShuffle(const char* kind, unsigned mask, T value, int from, int width,
                                    const char* file, int line) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t mine = 0;
  std::memcpy(&mine, &value, sizeof(value));
  const uint64_t* all = snug::cuda_on_cpu::WarpExchange(kind, mask, mine, {file, line});
  const int lane = snug::cuda_on_cpu::Lane(), group = lane / width * width;
  if (from < group || from >= group + width) return value;
  if ((mask >> from & 1) == 0)
    snug::cuda_on_cpu::Fail("%s:%d: %s: lane %d reads lane %d, which the mask leaves out", file,
                            line, kind, lane, from);
  std::memcpy(&value, &all[from], sizeof(value));
  return value;
}
#define SNUG_SHUFFLE(name, argument, source)                                        \
  template <typename T>                                                             \
  inline T name(unsigned mask, T value, argument, int width = warpSize,             \
                const char* file = __builtin_FILE(), int line = __builtin_LINE()) { \
    const int lane = snug::cuda_on_cpu::Lane();                                     \
    return SnugShuffle(#name, mask, value, source, width, file, line);              \
  }
SNUG_SHUFFLE(__shfl_sync, int from, lane / width * width + from % width)
SNUG_SHUFFLE(__shfl_xor_sync, int bits, lane ^ bits)
SNUG_SHUFFLE(__shfl_down_sync, unsigned by, lane + static_cast<int>(by))
SNUG_SHUFFLE(__shfl_up_sync, unsigned by, lane - static_cast<int>(by))
#undef SNUG_SHUFFLE

SNUG_UNWATCHED inline unsigned SnugBallot(const char* kind, unsigned mask, bool vote,
                                          const char* file, int line) {
  const uint64_t* all = snug::cuda_on_cpu::WarpExchange(kind, mask, vote, {file, line});
  unsigned votes = 0;
  for (int lane = 0; lane < warpSize; ++lane) votes |= all[lane] != 0 ? 1u << lane : 0;
  return votes;
}
#define SNUG_VOTE(name, type, result)                                            \
  inline type name(unsigned mask, int vote, const char* file = __builtin_FILE(), \
                   int line = __builtin_LINE()) {                                \
    const unsigned votes = SnugBallot(#name, mask, vote != 0, file, line);       \
    return result;                                                               \
  }
SNUG_VOTE(__ballot_sync, unsigned, votes)
SNUG_VOTE(__any_sync, int, votes != 0)
SNUG_VOTE(__all_sync, int, (votes & mask) == mask)
#undef SNUG_VOTE

// One thread runs at a time, so plain code is atomic; the watch is told that it is meant to be.
template <typename T, typename Operation>
SNUG_UNWATCHED inline T SnugAtomic(T* p, Operation operation) {
  snug::cuda_on_cpu::OnAccess(p, sizeof(T), snug::cuda_on_cpu::Access::kAtomic);
  T before, after;
  std::memcpy(&before, p, sizeof(T));
  after = operation(before);
  std::memcpy(p, &after, sizeof(T));
  return before;
}
template <typename T>
inline T atomicAdd(T* p, T value) {
  return SnugAtomic(p, [=](T old) { return static_cast<T>(old + value); });
}
template <typename T>
inline T atomicMax(T* p, T value) {
  return SnugAtomic(p, [=](T old) { return old < value ? value : old; });
}
template <typename T>
inline T atomicMin(T* p, T value) {
  return SnugAtomic(p, [=](T old) { return value < old ? value : old; });
}
template <typename T>
inline T atomicOr(T* p, T value) {
  return SnugAtomic(p, [=](T old) { return static_cast<T>(old | value); });
}
template <typename T>
inline T atomicExch(T* p, T value) {
  return SnugAtomic(p, [=](T) { return value; });
}
template <typename T>
inline T atomicCAS(T* p, T expected, T value) {
  return SnugAtomic(p, [=](T old) { return old == expected ? value : old; });
}
inline void __threadfence() {}

// ---- the runtime --------------------------------------------------------------------------------
using cudaStream_t = struct CUstream_st*;
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorLaunchFailure = 719,
};
inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "the emulated launch failed";
}
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  void* attrs = nullptr;
  unsigned numAttrs = 0;
};

template <typename... Parameters>
struct SnugCall {
  void (*kernel)(Parameters...);
  std::tuple<Parameters...> parameters;
  static void Run(const void* call) {
    const auto& self = *static_cast<const SnugCall*>(call);
    std::apply(self.kernel, self.parameters);
  }
};
template <typename... Parameters, typename... Arguments>
inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config,
                                      void (*kernel)(Parameters...), Arguments&&... arguments) {
  if (config->dynamicSmemBytes != 0) return cudaErrorInvalidValue;
  const SnugCall<Parameters...> call{kernel, {arguments...}};
  const auto index = [](dim3 d) { return snug::cuda_on_cpu::Index3{d.x, d.y, d.z}; };
  return snug::cuda_on_cpu::RunGrid(index(config->gridDim), index(config->blockDim),
                                    &SnugCall<Parameters...>::Run, &call, sizeof(call))
             ? cudaSuccess
             : cudaErrorLaunchFailure;
}

inline cudaError_t cudaMalloc(void** p, size_t bytes) {
  *p = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (*p == nullptr) return cudaErrorMemoryAllocation;
  snug::cuda_on_cpu::AddAllocation(*p, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMallocManaged(void** p, size_t bytes) { return cudaMalloc(p, bytes); }
inline cudaError_t cudaFree(void* p) {
  if (p != nullptr && !snug::cuda_on_cpu::RemoveAllocation(p)) return cudaErrorInvalidValue;
  std::free(p);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t) {
  std::memset(p, value, bytes);
  return cudaSuccess;
}

#endif  // TESTS_CUDA_ON_CPU_INCLUDE_CUDA_RUNTIME_H_
