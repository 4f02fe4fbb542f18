// What the kernel tests share: tensors laid out as badly as a contract allows, and comparisons.
#ifndef TESTS_KERNELS_KERNEL_TESTING_H_
#define TESTS_KERNELS_KERNEL_TESTING_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/types.h"
#include "tests/kernels/device.h"

namespace snug::kernels {

inline constexpr int64_t kWidths[] = {1, 31, 33, 64, 127, 2048, 4097};
inline constexpr int64_t kHeights[] = {1, 3, 33};
inline constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

// N rows of C elements: the first one element off every alignment, rows an odd stride apart; where
// C is a multiple of 8, all rows aligned to 16 bytes, as kernels with wide accesses want them. With
// a pattern before, between and after them that nobody may touch. Elements begin unwritten, which
// is NaN: what an op does not write shows, and what it reads too early.
class Matrix {
 public:
  Matrix(int64_t N, int64_t C, DType dtype = DType::kF32);

  // Normal variates of deviation `scale`, rounded to the dtype.
  Matrix& Fill(uint32_t seed, double scale = 1.0);
  void Set(int64_t i, int64_t c, double value);
  double At(int64_t i, int64_t c) const;

  void* data() { return storage_.data() + offset_; }
  const void* data() const { return storage_.data() + offset_; }
  void* row(int64_t i) { return storage_.data() + offset_ + i * stride_ * SizeOf(dtype_); }
  float* floats() { return static_cast<float*>(data()); }
  int64_t N() const { return N_; }
  int64_t C() const { return C_; }
  int64_t stride() const { return stride_; }
  DType dtype() const { return dtype_; }

  bool GapsUntouched() const;
  // All of the memory, gaps included.
  const Bytes& bytes() const;

 private:
  int64_t N_, C_, stride_, offset_;
  DType dtype_;
  Bytes storage_;
};

// Half the distance from 1 to the next number: the relative error of rounding.
double UnitOf(DType dtype);

// A dense reference result, row by row, in double.
using Reference = std::vector<double>;
Reference Map(const Matrix& shape, const std::function<double(int64_t i, int64_t c)>& element);

// Each element within `units` of the dtype's rounding of the reference, plus 2e-6 of the tensor's
// largest element (what sums in fp32 lose); all of an fp32 tensor within 1e-6 relative L2.
void ExpectClose(const Matrix& actual, const Reference& expected, double units = 1.0);

// Relative L2 error.
double RelativeError(const Matrix& actual, const Reference& expected);

// N ids below `below`, some of them more than once: i * i modulo `below`.
SharedVector<int32_t> RepeatingIds(int64_t N, int64_t below);

// (f(x + h) - f(x - h)) / 2h for every element of `x`, f in double.
Reference FiniteDifferences(std::vector<double> x,
                            const std::function<double(const std::vector<double>&)>& f);
std::vector<double> Dense(const Matrix& m);

// Calls the body with each instruction set of this machine; on CUDA once.
void OnEachInstructionSet(const std::function<void()>& body);

// Runs `op` with 1, 2, 3 and 5 threads on every instruction set of this machine, on CUDA twice; all
// must give the bytes that the first gives.
void ExpectSameBitsEveryWay(const std::function<Bytes()>& op);

// The body once per dtype, height and width; without the largest on CUDA, over which the emulation
// would take long.
template <typename Body>
void ForMatrices(const Body& body) {
  for (DType dtype : kTypes) {
    for (int64_t N : kHeights) {
      for (int64_t C : kWidths) {
        if (!OnCpu() && N * C > 50000) continue;
        SCOPED_TRACE(testing::Message()
                     << N << " x " << C << " of type " << static_cast<int>(dtype));
        body(N, C, dtype);
      }
    }
  }
}

// "bad stride: x_stride"
std::string Name(const Error& error);

}  // namespace snug::kernels

#endif  // TESTS_KERNELS_KERNEL_TESTING_H_
