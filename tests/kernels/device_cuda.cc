// Tests of kernels on a GPU, or on its emulation: of the runtime's functions, those of the
// cuda_runtime.h that this file is compiled with.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#include "tests/kernels/device.h"

namespace snug::kernels {
namespace {

void Must(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
  std::abort();
}

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
  void* memory = nullptr;
  Must(cudaMallocManaged(&memory, bytes == 0 ? 1 : bytes));
  return memory;
}

void FreeShared(void* memory) {
  WaitForKernels();
  Must(cudaFree(memory));
}

// Managed memory takes up what is touched of it.
void* AllocateSparse(size_t bytes) {
  void* memory = nullptr;
  return cudaMallocManaged(&memory, bytes) == cudaSuccess ? memory : nullptr;
}
void FreeSparse(void* memory, size_t) {
  if (memory != nullptr) FreeShared(memory);
}

}  // namespace snug::kernels
