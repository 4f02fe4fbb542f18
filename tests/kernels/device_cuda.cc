// Tests of kernels on a GPU, or on its emulation: of the runtime's functions, those of the
// cuda_runtime.h that this file is compiled with.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "tests/kernels/device.h"

namespace snug::kernels {
namespace {

void Must(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
  std::abort();
}

// What AllocateShared has given, and how much that is.
struct SharedBytes {
  std::map<void*, size_t> of;
  size_t all = 0;

  static SharedBytes& Get() {
    static auto* shared = new SharedBytes;  // Static tensors are freed after it would be.
    return *shared;
  }
};

}  // namespace

Stream TestStream() {
  static const cudaStream_t stream = [] {
    cudaStream_t made;
    Must(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    return made;
  }();
  return reinterpret_cast<Stream>(stream);
}

void WaitForKernels() { Must(cudaStreamSynchronize(reinterpret_cast<cudaStream_t>(TestStream()))); }

void* AllocateShared(size_t bytes) {
  SharedBytes& shared = SharedBytes::Get();
  if (bytes > kMostSharedBytes - shared.all) {
    std::fprintf(stderr,
                 "a test asks for %zu bytes of a GPU above the %zu that it has; %zu are most\n",
                 bytes, shared.all, kMostSharedBytes);
    std::abort();
  }
  void* memory = nullptr;
  Must(cudaMallocManaged(&memory, bytes == 0 ? 1 : bytes));
  shared.of[memory] = bytes;
  shared.all += bytes;
  LeaveUnwritten(memory, bytes);
  return memory;
}

void FreeShared(void* memory) {
  WaitForKernels();
  SharedBytes& shared = SharedBytes::Get();
  if (const auto found = shared.of.find(memory); found != shared.of.end()) {
    shared.all -= found->second;
    shared.of.erase(found);
  }
  Must(cudaFree(memory));
}

#ifdef SNUG_CUDA_ON_CPU

void LeaveUnwritten(void* memory, size_t bytes) { cuda_on_cpu::MarkUnwritten(memory, bytes); }

// The host's own mapping.
void* AllocateSparse(size_t bytes) {
  void* memory = nullptr;
  return cudaMalloc(&memory, bytes) == cudaSuccess ? memory : nullptr;
}

#else

void LeaveUnwritten(void* memory, size_t bytes) { std::memset(memory, 0xff, bytes); }
void* AllocateSparse(size_t /*bytes*/) { return nullptr; }

#endif

void FreeSparse(void* memory, size_t) {
  if (memory != nullptr) FreeShared(memory);
}

}  // namespace snug::kernels
