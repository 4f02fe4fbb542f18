// Activations of one operand: exact forward and backward, against references in double.
#include "kernels/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/activation_testing.h"

namespace snug::kernels {
namespace {

ActivationBackwardParams Backward(Matrix& dy, Matrix& x, Matrix& dx, Activation activation) {
  return {.dy = dy.data(),
          .x = x.data(),
          .dx = dx.data(),
          .N = x.N(),
          .C = x.C(),
          .dy_stride = dy.stride(),
          .x_stride = x.stride(),
          .dx_stride = dx.stride(),
          .dtype = x.dtype(),
          .activation = activation};
}

TEST(ActivationTest, MatchesReference) {
  for (Activation activation : kWithTanh) {
    for (DType dtype : kTypes) {
      for (int64_t N : kHeights) {
        for (int64_t C : kWidths) {
          SCOPED_TRACE(testing::Message()
                       << static_cast<int>(activation) << ": " << N << " x " << C);
          Matrix x(N, C, dtype), y(N, C, dtype), dy(N, C, dtype), dx(N, C, dtype);
          x.Fill(1, activation == Activation::kSilu ? 8.0 : 3.0);
          dy.Fill(2);
          ASSERT_TRUE(ActivationForward(Forward(x, y, activation), TestStream()).ok());
          ASSERT_TRUE(ActivationBackward(Backward(dy, x, dx, activation), TestStream()).ok());
          ExpectClose(
              y, Map(y, [&](int64_t i, int64_t c) { return ValueIn64(activation, x.At(i, c)); }));
          ExpectClose(dx, Map(dx, [&](int64_t i, int64_t c) {
                        return dy.At(i, c) * SlopeIn64(activation, x.At(i, c));
                      }));
        }
      }
    }
  }
}

TEST(ActivationTest, BackwardMatchesFiniteDifferences) {
  for (Activation activation : kWithTanh) {
    Matrix x(2, 31), dy(2, 31), dx(2, 31);
    x.Fill(3, 2.0);
    dy.Fill(4);
    ASSERT_TRUE(ActivationBackward(Backward(dy, x, dx, activation), TestStream()).ok());
    const std::vector<double> weights = Dense(dy);
    const Reference expected = FiniteDifferences(Dense(x), [&](const std::vector<double>& v) {
      double sum = 0.0;
      for (size_t k = 0; k < v.size(); ++k) sum += weights[k] * ValueIn64(activation, v[k]);
      return sum;
    });
    EXPECT_LE(RelativeError(dx, expected), 1e-6);
  }
}

// LMBP-2: within 2 units of the dtype, or fp32 within 1e-6 relative and 1e-7, on [-20, 20]; also in
// the tails, where 1 + erf would have cancelled to nothing.
TEST(ActivationTest, Lmbp2ForwardIsExactOverTheRange) {
  constexpr int64_t kPoints = 40001;
  for (Activation activation : kSmooth) {
    for (DType dtype : kTypes) {
      Matrix x(1, kPoints, dtype), y(1, kPoints, dtype);
      for (int64_t c = 0; c < kPoints; ++c) {
        x.Set(0, c, -20.0 + 40.0 * static_cast<double>(c) / (kPoints - 1));
      }
      ASSERT_TRUE(ActivationForward(Forward(x, y, activation), TestStream()).ok());
      const double relative = dtype == DType::kF32 ? 1e-6 : 4.0 * UnitOf(dtype);
      for (int64_t c = 0; c < kPoints; ++c) {
        const double expected = ValueIn64(activation, x.At(0, c));
        ASSERT_NEAR(y.At(0, c), expected, relative * std::abs(expected) + 1e-7) << x.At(0, c);
      }
    }
  }
}

// LMBP-2: both zeros, infinities and NaN. At -infinity the smooth ones are NaN by decision (the
// header); far out neither tail overflows.
TEST(ActivationTest, Lmbp2SpecialValues) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double xs[] = {0.0, -0.0, infinity, -infinity, std::nan(""), 1e30, -1e30, 200.0, -200.0};
  for (Activation activation : kActivations) {
    Matrix x(1, 9), y(1, 9), one(1, 9), dx(1, 9);
    for (int64_t c = 0; c < 9; ++c) {
      x.Set(0, c, xs[c]);
      one.Set(0, c, 1.0);
    }
    ASSERT_TRUE(ActivationForward(Forward(x, y, activation), TestStream()).ok());
    ASSERT_TRUE(ActivationBackward(Backward(one, x, dx, activation), TestStream()).ok());
    EXPECT_EQ(y.At(0, 0), 0.0);
    EXPECT_EQ(y.At(0, 1), 0.0);
    EXPECT_EQ(y.At(0, 2), infinity);
    if (activation == Activation::kRelu) {
      EXPECT_EQ(y.At(0, 3), 0.0);
    } else {
      EXPECT_TRUE(std::isnan(y.At(0, 3)) && std::isnan(dx.At(0, 4)));
      EXPECT_NEAR(dx.At(0, 0), 0.5, 1e-6);
    }
    EXPECT_TRUE(std::isnan(y.At(0, 4)));
    for (int64_t c : {5, 7}) {
      EXPECT_EQ(y.At(0, c), x.At(0, c));
      EXPECT_EQ(dx.At(0, c), 1.0);
      EXPECT_NEAR(y.At(0, c + 1), 0.0, 1e-36);
      EXPECT_NEAR(dx.At(0, c + 1), 0.0, 1e-34);
    }
  }
}

// Over its operand forward, over either backward.
TEST(ActivationTest, WorksInPlace) {
  for (DType dtype : kTypes) {
    Matrix x(3, 127, dtype), y(3, 127, dtype), dy(3, 127, dtype), dx(3, 127, dtype);
    x.Fill(5);
    dy.Fill(6);
    ASSERT_TRUE(ActivationForward(Forward(x, y, Activation::kGelu), TestStream()).ok());
    ASSERT_TRUE(ActivationBackward(Backward(dy, x, dx, Activation::kGelu), TestStream()).ok());
    Matrix over = x;
    ASSERT_TRUE(ActivationForward(Forward(over, over, Activation::kGelu), TestStream()).ok());
    EXPECT_EQ(over.bytes(), y.bytes());
    over = x;
    ASSERT_TRUE(ActivationBackward(Backward(dy, over, over, Activation::kGelu), TestStream()).ok());
    EXPECT_EQ(over.bytes(), dx.bytes());
    ASSERT_TRUE(ActivationBackward(Backward(dy, x, dy, Activation::kGelu), TestStream()).ok());
    EXPECT_EQ(dy.bytes(), dx.bytes());
  }
}

TEST(ActivationTest, SameBitsForAllThreadCountsAndInstructionSets) {
  for (Activation activation : kWithTanh) {
    const DType dtype = kTypes[static_cast<int>(activation) % 3];
    Matrix x(67, 1031, dtype);
    x.Fill(7, 3.0);
    ExpectSameBitsEveryWay([&] {
      Matrix y(67, 1031, dtype), dx(67, 1031, dtype);
      EXPECT_TRUE(ActivationForward(Forward(x, y, activation), TestStream()).ok());
      EXPECT_TRUE(ActivationBackward(Backward(y, x, dx, activation), TestStream()).ok());
      Bytes bytes = y.bytes();
      bytes.insert(bytes.end(), dx.bytes().begin(), dx.bytes().end());
      return bytes;
    });
  }
}

TEST(ActivationTest, RefusesBadArguments) {
  Matrix x(3, 33), y(3, 33);
  CodeRows codes(3, 33, 2);
  const Bytes before = y.bytes();
  const auto refused = [&](auto change) {
    ActivationForwardParams p = Forward(x, y, Activation::kGelu);
    p.codes = codes.data();
    p.code_stride = codes.stride();
    change(p);
    return Name(ActivationForward(p, TestStream()));
  };
  using P = ActivationForwardParams;
  EXPECT_EQ(refused([](P& p) { p.x = nullptr; }), "null pointer: x");
  EXPECT_EQ(refused([](P& p) { p.y_stride = 32; }), "bad stride: y_stride");
  EXPECT_EQ(refused([](P& p) { p.code_stride = 8; }), "bad stride: code_stride");
  EXPECT_EQ(refused([](P& p) { p.two_bit = {}; }), "bad value: two_bit");
  EXPECT_EQ(refused([](P& p) { p.mask = p.codes, p.mask_stride = 9; }), "bad value: mask");
  EXPECT_EQ(refused([](P& p) { p.activation = static_cast<Activation>(5); }),
            "bad value: activation");
  ActivationBackwardParams backward = Backward(x, x, y, Activation::kGelu);
  backward.dtype = static_cast<DType>(3);
  EXPECT_EQ(Name(ActivationBackward(backward, TestStream())), "bad dtype: dtype");
  EXPECT_EQ(y.bytes(), before);
}

}  // namespace
}  // namespace snug::kernels
