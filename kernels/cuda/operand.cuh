// The operands of a kernel as a launch sees them: whether all of them may be moved 16 bytes at a
// time.
#ifndef KERNELS_CUDA_OPERAND_CUH_
#define KERNELS_CUDA_OPERAND_CUH_

#include <cstdint>

namespace snug::kernels::cuda {

inline constexpr int kAccessBytes = 16;

// Rows of a matrix of elements of `bytes` bytes; of a single row the stride may be 0. Not wanted,
// not needed: null.
struct Operand {
  const void* data;
  int64_t stride;
  int64_t bytes;
};

// Whether all rows begin where packs of V may, and divide into them.
inline bool Divides(const Operand& x, int64_t C, int64_t V) {
  const auto address = reinterpret_cast<uintptr_t>(x.data);
  const int64_t aligned = x.bytes * V < kAccessBytes ? x.bytes * V : kAccessBytes;
  return x.data == nullptr || (address % static_cast<uintptr_t>(aligned) == 0 && C % V == 0 &&
                               x.stride * x.bytes % aligned == 0);
}

template <int kValue>
struct Constant {
  static constexpr int value = kValue;
};

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_OPERAND_CUH_
