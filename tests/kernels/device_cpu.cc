// Tests of kernels on the CPU.
#include <cstdlib>

#include "tests/kernels/device.h"

namespace snug::kernels {

Stream TestStream() { return nullptr; }
void WaitForKernels() {}
void* AllocateShared(size_t bytes) { return std::malloc(bytes == 0 ? 1 : bytes); }
void FreeShared(void* memory) { std::free(memory); }

}  // namespace snug::kernels
