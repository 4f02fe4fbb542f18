// Sum of squares over many tensors.
#include "kernels/grad_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

NormTensor TensorOf(const Matrix& m) { return {.x = m.data(), .n = m.C(), .dtype = m.dtype()}; }

double SumOf(const std::vector<NormTensor>& tensors) {
  double sum = -1.0;
  EXPECT_TRUE(SumSquares({.tensors = tensors.data(),
                          .count = static_cast<int64_t>(tensors.size()),
                          .sum_squares = &sum},
                         nullptr)
                  .ok());
  return sum;
}

// 300 spans: more than one group.
TEST(SumSquaresTest, MatchesReference) {
  for (DType dtype : kTypes) {
    std::vector<Matrix> matrices;
    std::vector<NormTensor> tensors;
    long double expected = 0.0;
    for (int64_t n : {1, 31, 33, 127, 4097, 16384 * 299 + 5}) {
      matrices.emplace_back(1, n, dtype).Fill(static_cast<uint32_t>(n));
      for (int64_t c = 0; c < n; ++c) expected += std::pow(matrices.back().At(0, c), 2);
    }
    for (const Matrix& m : matrices) tensors.push_back(TensorOf(m));
    EXPECT_NEAR(SumOf(tensors) / static_cast<double>(expected), 1.0, 1e-13);
  }
}

TEST(SumSquaresTest, NothingIsZero) {
  EXPECT_EQ(SumOf({}), 0.0);
  EXPECT_EQ(SumOf({NormTensor{}}), 0.0);
}

// Squares of 1e30 would overflow in fp32, and an infinite element must not be lost among them.
TEST(SumSquaresTest, IsFiniteExactlyIfEveryElementIs) {
  Matrix m(1, 20000);
  m.Fill(1);
  m.Set(0, 19999, 1e30);
  EXPECT_NEAR(SumOf({TensorOf(m)}) / 1e60, 1.0, 1e-6);
  m.Set(0, 777, std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isinf(SumOf({TensorOf(m)})));
  m.Set(0, 778, std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(std::isnan(SumOf({TensorOf(m)})));
}

TEST(SumSquaresTest, SameBitsForAllThreadCountsAndInstructionSets) {
  for (DType dtype : kTypes) {
    Matrix a(1, 123457, dtype), b(1, 33, dtype);
    a.Fill(2);
    b.Fill(3);
    ExpectSameBitsEveryWay([&] {
      const double sum = SumOf({TensorOf(a), TensorOf(b)});
      Bytes bytes(sizeof(sum));
      memcpy(bytes.data(), &sum, sizeof(sum));
      return bytes;
    });
  }
}

TEST(SumSquaresTest, RefusesBadArguments) {
  Matrix m(1, 3);
  NormTensor tensor = TensorOf(m);
  double sum = -1.0;
  const auto refused = [&] {
    return Name(SumSquares({.tensors = &tensor, .count = 1, .sum_squares = &sum}, TestStream()));
  };
  tensor.n = -1;
  EXPECT_EQ(refused(), "bad shape: n");
  tensor = {.x = nullptr, .n = 3};
  EXPECT_EQ(refused(), "null pointer: x");
  EXPECT_EQ(Name(SumSquares({.tensors = &tensor, .count = 1}, TestStream())),
            "null pointer: sum_squares");
  EXPECT_EQ(sum, -1.0);
}

}  // namespace
}  // namespace snug::kernels
