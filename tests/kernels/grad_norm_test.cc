// Sum of squares over many tensors.
#include "kernels/grad_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

NormTensor TensorOf(const Matrix& m) { return {.x = m.data(), .n = m.C(), .dtype = m.dtype()}; }

void* Workspace() {
  static Bytes workspace(SumSquaresWorkspace());
  return workspace.data();
}

double SumOf(const std::vector<NormTensor>& tensors) {
  SharedVector<double> sum = {-1.0};
  EXPECT_TRUE(SumSquares({.tensors = tensors.data(),
                          .count = static_cast<int64_t>(tensors.size()),
                          .sum_squares = sum.data(),
                          .workspace = Workspace()},
                         TestStream())
                  .ok());
  WaitForKernels();
  return sum[0];
}

// On the CPU 300 spans: more than one group.
TEST(SumSquaresTest, MatchesReference) {
  for (DType dtype : kTypes) {
    std::vector<Matrix> matrices;
    std::vector<NormTensor> tensors;
    long double expected = 0.0;
    for (int64_t n : {1, 31, 33, 127, 4097, OnCpu() ? 16384 * 299 + 5 : 16384 * 7 + 5}) {
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

// More tensors than one launch of CUDA takes, and more than one span in some of them.
TEST(SumSquaresTest, AddsManyTensors) {
  std::vector<Matrix> matrices;
  std::vector<NormTensor> tensors;
  double expected = 0.0;
  for (int64_t k = 0; k < 301; ++k) {
    matrices.emplace_back(1, k % 50 == 7 ? 9000 + k : 1 + k % 40, kTypes[k % 3])
        .Fill(static_cast<uint32_t>(k));
    for (double x : Dense(matrices.back())) expected += x * x;
  }
  for (const Matrix& m : matrices) tensors.push_back(TensorOf(m));
  tensors.push_back(NormTensor{});
  EXPECT_NEAR(SumOf(tensors) / expected, 1.0, 1e-13);
}

TEST(SumSquaresTest, RefusesBadArguments) {
  Matrix m(1, 3);
  NormTensor tensor = TensorOf(m);
  SharedVector<double> sum = {-1.0};
  SumSquaresParams p = {
      .tensors = &tensor, .count = 1, .sum_squares = sum.data(), .workspace = Workspace()};
  const auto refused = [&] { return Name(SumSquares(p, TestStream())); };
  tensor.n = -1;
  EXPECT_EQ(refused(), "bad shape: n");
  tensor = {.x = nullptr, .n = 3};
  EXPECT_EQ(refused(), "null pointer: x");
  tensor = TensorOf(m);
  tensor.dtype = static_cast<DType>(9);
  EXPECT_EQ(refused(), "bad dtype: dtype");
  tensor = TensorOf(m);
  if (!OnCpu()) {
    p.workspace = nullptr;
    EXPECT_EQ(refused(), "null pointer: workspace");
  }
  p.sum_squares = nullptr;
  EXPECT_EQ(refused(), "null pointer: sum_squares");
  WaitForKernels();
  EXPECT_EQ(sum[0], -1.0);
}

float FactorOf(double norm, double max_norm) {
  SharedVector<double> sum_squares = {norm * norm};
  SharedVector<float> factor = {-1.0f};
  EXPECT_TRUE(
      ClipFactor({.sum_squares = sum_squares.data(), .max_norm = max_norm, .factor = factor.data()},
                 TestStream())
          .ok());
  WaitForKernels();
  return factor[0];
}

// As torch.nn.utils.clip_grad_norm_: never above 1, and what is not finite shows.
TEST(ClipFactorTest, ShrinksWhatIsLongerThanTheLimit) {
  EXPECT_EQ(FactorOf(0.5, 1.0), 1.0f);
  EXPECT_EQ(FactorOf(0.0, 1.0), 1.0f);
  EXPECT_FLOAT_EQ(FactorOf(4.0, 1.0), 1.0 / (4.0 + 1e-6));
  EXPECT_FLOAT_EQ(FactorOf(1.0, 1.0), 1.0 / (1.0 + 1e-6));
  EXPECT_EQ(FactorOf(std::numeric_limits<double>::infinity(), 1.0), 0.0f);
  EXPECT_TRUE(std::isnan(FactorOf(std::nan(""), 1.0)));
}

TEST(ClipFactorTest, RefusesBadArguments) {
  double sum = 1.0;
  float factor = 3.0f;
  EXPECT_EQ(
      Name(ClipFactor({.sum_squares = &sum, .max_norm = 0.0, .factor = &factor}, TestStream())),
      "bad value: max_norm");
  EXPECT_EQ(Name(ClipFactor({.max_norm = 1.0, .factor = &factor}, TestStream())),
            "null pointer: sum_squares");
  EXPECT_EQ(Name(ClipFactor({.sum_squares = &sum, .max_norm = 1.0}, TestStream())),
            "null pointer: factor");
  EXPECT_EQ(factor, 3.0f);
}

}  // namespace
}  // namespace snug::kernels
