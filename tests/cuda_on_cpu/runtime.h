// Emulated CUDA: the functions of the runtime that kernels/ and its tests call. A launch is done
// when it returns, so that streams have nothing to wait for; where launches are queued
// (SetLaunchQueue), whoever does that answers for its streams.
#ifndef TESTS_CUDA_ON_CPU_RUNTIME_H_
#define TESTS_CUDA_ON_CPU_RUNTIME_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/cuda_on_cpu/emulator.h"
#include "tests/cuda_on_cpu/language.h"
#include "tests/cuda_on_cpu/memory_watch.h"

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
// What the last failed launch left, once.
inline cudaError_t snug_last_error = cudaSuccess;
inline cudaError_t cudaGetLastError() { return std::exchange(snug_last_error, cudaSuccess); }
// A GPU so small that kernels which fill one step over their work.
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16 };
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 2;
  return cudaSuccess;
}
// A stream that is not the default one, and nothing more.
inline constexpr unsigned cudaStreamNonBlocking = 1;
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  static char any;
  *stream = reinterpret_cast<cudaStream_t>(&any);
  return cudaSuccess;
}
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
  static_assert((std::is_trivially_copyable_v<Parameters> && ...), "a queue copies its bytes");
  if (config->dynamicSmemBytes != 0) return snug_last_error = cudaErrorInvalidValue;
  const SnugCall<Parameters...> call{kernel, {arguments...}};
  const auto index = [](dim3 d) { return snug::cuda_on_cpu::Index3{d.x, d.y, d.z}; };
  return snug::cuda_on_cpu::Launch({config->stream, reinterpret_cast<const void*>(kernel),
                                    index(config->gridDim), index(config->blockDim),
                                    &SnugCall<Parameters...>::Run, &call, sizeof(call)})
             ? cudaSuccess
             : (snug_last_error = cudaErrorLaunchFailure);
}

// From this size on memory is mapped, so that it takes up what is touched of it, and begins as
// zeros; smaller memory is marked as not written.
inline constexpr size_t kSnugMappedBytes = size_t{1} << 30;
inline cudaError_t cudaMalloc(void** p, size_t bytes) {
  if (bytes < kSnugMappedBytes) {
    *p = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  } else {
    *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
              -1, 0);
    if (*p == MAP_FAILED) *p = nullptr;
  }
  if (*p == nullptr) return cudaErrorMemoryAllocation;
  snug::cuda_on_cpu::AddAllocation(*p, bytes);
  if (bytes < kSnugMappedBytes) snug::cuda_on_cpu::MarkUnwritten(*p, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMallocManaged(void** p, size_t bytes) { return cudaMalloc(p, bytes); }
inline cudaError_t cudaFree(void* p) {
  if (p == nullptr) return cudaSuccess;
  const size_t bytes = snug::cuda_on_cpu::RemoveAllocation(p);
  if (bytes == 0) return cudaErrorInvalidValue;
  if (bytes < kSnugMappedBytes) {
    std::free(p);
  } else {
    munmap(p, bytes);
  }
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t) {
  std::memset(p, value, bytes);
  return cudaSuccess;
}

#endif  // TESTS_CUDA_ON_CPU_RUNTIME_H_
