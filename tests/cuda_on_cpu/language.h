// Emulated CUDA: what the compiler itself knows of the language.
#ifndef TESTS_CUDA_ON_CPU_LANGUAGE_H_
#define TESTS_CUDA_ON_CPU_LANGUAGE_H_

#include "tests/cuda_on_cpu/emulator.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
// GCC puts as many empty instructions before the kernel, and notes where they begin: how the launch
// finds the bound (launch_bounds.h). sizeof, because the attribute wants a folded constant. What
// stands behind the comma, blocks per multiprocessor, decides how many registers nvcc gives.
#define SNUG_FIRST(first, ...) first
#define SNUG_BOUND(...) sizeof(char[SNUG_FIRST(__VA_ARGS__, 0)])
#define __launch_bounds__(...) \
  __attribute__((patchable_function_entry(SNUG_BOUND(__VA_ARGS__), SNUG_BOUND(__VA_ARGS__))))
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

#endif  // TESTS_CUDA_ON_CPU_LANGUAGE_H_
