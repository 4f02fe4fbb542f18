// Tests of kernels on the CPU.
#include <sys/mman.h>

#include <cstdlib>

#include "tests/kernels/device.h"

namespace snug::kernels {

Stream TestStream() { return nullptr; }
void WaitForKernels() {}
void* AllocateShared(size_t bytes) { return std::malloc(bytes == 0 ? 1 : bytes); }
void FreeShared(void* memory) { std::free(memory); }

void* AllocateSparse(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}
void FreeSparse(void* memory, size_t bytes) {
  if (memory != nullptr) munmap(memory, bytes);
}

}  // namespace snug::kernels
