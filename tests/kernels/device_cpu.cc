// Tests of kernels on the CPU.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "tests/kernels/device.h"

namespace snug::kernels {

Stream TestStream() { return nullptr; }
void WaitForKernels() {}
void* AllocateShared(size_t bytes) {
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) std::abort();
  LeaveUnwritten(memory, bytes);
  return memory;
}
void FreeShared(void* memory) { std::free(memory); }
void LeaveUnwritten(void* memory, size_t bytes) { std::memset(memory, 0xff, bytes); }

void* AllocateSparse(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}
void FreeSparse(void* memory, size_t bytes) {
  if (memory != nullptr) munmap(memory, bytes);
}

}  // namespace snug::kernels
