// Where the kernels of a test run. The same test is linked three times: with device_cpu.cc, and
// with device_cuda.cc, whose CUDA is the emulation or a GPU's.
#ifndef TESTS_KERNELS_DEVICE_H_
#define TESTS_KERNELS_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include "kernels/types.h"

namespace snug::kernels {

// What every call of a kernel is given: nullptr on the CPU.
Stream TestStream();
inline bool OnCpu() { return TestStream() == nullptr; }

// Until kernels have done what they were called for. An error of a kernel ends the test program,
// or, of an emulated one, was the error of its call.
void WaitForKernels();

// Memory that host and kernels can use. It begins as LeaveUnwritten leaves it. On CUDA all of it
// together is at most kMostSharedBytes; who asks for more ends the test program.
inline constexpr size_t kMostSharedBytes = size_t{16} << 30;  // A test may share its GPU.
void* AllocateShared(size_t bytes);
void FreeShared(void* memory);
// As memory that nobody has written: NaN in every number type. The emulation reports kernels that
// read it.
void LeaveUnwritten(void* memory, size_t bytes);
// The same of many gigabytes, of which little is ever touched: only that takes up memory. It begins
// as zeros. nullptr: the machine does not want to. A GPU never does: its driver moves managed
// memory in pages of up to 2 MiB, and gives no promise of what far rows would take up.
void* AllocateSparse(size_t bytes);
void FreeSparse(void* memory, size_t bytes);
class SparseMemory {
 public:
  explicit SparseMemory(size_t bytes) : bytes_(bytes), memory_(AllocateSparse(bytes)) {}
  ~SparseMemory() { FreeSparse(memory_, bytes_); }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;
  char* data() { return static_cast<char*>(memory_); }

 private:
  size_t bytes_;
  void* memory_;
};

template <typename T>
struct SharedAllocator {
  using value_type = T;
  SharedAllocator() = default;
  template <typename U>
  SharedAllocator(const SharedAllocator<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(AllocateShared(n * sizeof(T))); }
  void deallocate(T* p, size_t) { FreeShared(p); }
  // SharedVector<float>(n) stays unwritten.
  template <typename U>
  void construct(U* p) {
    ::new (static_cast<void*>(p)) U;
  }
  template <typename U, typename... Arguments>
  void construct(U* p, Arguments&&... arguments) {
    ::new (static_cast<void*>(p)) U(std::forward<Arguments>(arguments)...);
  }
  bool operator==(const SharedAllocator&) const { return true; }
};
template <typename T>
using SharedVector = std::vector<T, SharedAllocator<T>>;
using Bytes = SharedVector<uint8_t>;

}  // namespace snug::kernels

#endif  // TESTS_KERNELS_DEVICE_H_
