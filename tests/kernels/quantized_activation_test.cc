// Activations with their input as codes: against the plain ops, and against slopes in double of
// what the codes stand for. Tests are named by the oracles of the method (MESA-n) that they are.
#include "kernels/quantized_activation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/kernels/activation_testing.h"
#include "tests/kernels/quantized_testing.h"

namespace snug::kernels {
namespace {

QuantizedActivationForwardParams Forward(Matrix& x, Matrix& y, Coded& codes, Activation h) {
  return {.activation = Forward(x, y, h), .x = codes.q(), .dither = {.site = kQuantizeSite}};
}

QuantizedActivationBackwardParams Backward(Matrix& dy, Matrix& dx, Coded& codes, Activation h) {
  return {.activation = {.dy = dy.data(),
                         .dx = dx.data(),
                         .N = dy.N(),
                         .C = dy.C(),
                         .dy_stride = dy.stride(),
                         .dx_stride = dx.stride(),
                         .dtype = dy.dtype(),
                         .activation = h},
          .x = codes.q()};
}

template <typename Body>
void ForShapes(Body body) {
  for (Activation h : kActivations) {
    for (DType dtype : kTypes) {
      for (int64_t C : {1, 31, 33, 127, 264, 4097}) {
        SCOPED_TRACE(testing::Message() << C << " columns, activation " << static_cast<int>(h)
                                        << ", type " << static_cast<int>(dtype));
        body(C, dtype, h);
      }
    }
  }
}

// MESA-1: y is the plain op's bit by bit, and codes are those of Quantize; y may lie over x.
TEST(QuantizedActivationTest, Mesa1ForwardIsThePlainOp) {
  ForShapes([](int64_t C, DType dtype, Activation h) {
    Matrix x(3, C, dtype), y(3, C, dtype), plain(3, C, dtype);
    x.Fill(static_cast<uint32_t>(C), 2.0);
    Coded codes(3, C, CodeBits::k8), apart(3, C, CodeBits::k8), over(3, C, CodeBits::k8);
    QuantizedActivationForwardParams p = Forward(x, y, codes, h);
    ASSERT_TRUE(QuantizedActivationForward(p, TestStream()).ok());
    p.activation.y = plain.data();
    ASSERT_TRUE(ActivationForward(p.activation, TestStream()).ok());
    ASSERT_TRUE(QuantizeInto(x, apart).ok());
    EXPECT_EQ(y.bytes(), plain.bytes());
    EXPECT_EQ(codes.bytes(), apart.bytes());
    ASSERT_TRUE(QuantizedActivationForward(Forward(x, x, over, h), TestStream()).ok());
    EXPECT_EQ(x.bytes(), y.bytes());
    EXPECT_EQ(over.bytes(), codes.bytes());
  });
}

TEST(QuantizedActivationTest, BackwardMatchesReference) {
  ForShapes([](int64_t C, DType dtype, Activation h) {
    for (CodeBits bits : {CodeBits::k8, CodeBits::k4}) {
      Matrix x(3, C, dtype), y(3, C, dtype), dy(3, C, dtype), dx(3, C, dtype);
      x.Fill(static_cast<uint32_t>(C), 2.0);
      dy.Fill(5);
      Coded codes(3, C, bits);
      ASSERT_TRUE(QuantizedActivationForward(Forward(x, y, codes, h), TestStream()).ok());
      ASSERT_TRUE(QuantizedActivationBackward(Backward(dy, dx, codes, h), TestStream()).ok());
      for (int64_t i = 0; i < 3; ++i) {
        for (int64_t c = 0; c < C; ++c) {
          const double slope = SlopeIn64(h, codes.value(i, c));
          if (h == Activation::kRelu && std::abs(codes.value(i, c)) < 1e-4) continue;
          const double subnormal = dtype == DType::kF16 ? 0x1p-25 : 0.0;  // Half a step of it.
          ASSERT_NEAR(dx.At(i, c), dy.At(i, c) * slope,
                      UnitOf(dtype) * std::abs(dy.At(i, c) * slope) + 3e-6 * std::abs(dy.At(i, c)) +
                          subnormal);
        }
      }
      EXPECT_TRUE(dx.GapsUntouched());
      ASSERT_TRUE(QuantizedActivationBackward(Backward(dy, dy, codes, h), TestStream()).ok());
      EXPECT_EQ(dy.bytes(), dx.bytes());
    }
  });
}

// The error of dx is at most sup |h''| times a step. Codes of 4 bits show that it is the code's,
// and that another bound (a quarter of it) would not hold.
TEST(QuantizedActivationTest, Mesa12ErrorOfTheGradient) {
  struct Case {
    Activation h;
    double most;
  };
  for (const Case& t : {Case{Activation::kGelu, 0.79788}, Case{Activation::kSilu, 0.5}}) {
    for (CodeBits bits : {CodeBits::k8, CodeBits::k4}) {
      Matrix x(7, 1031), y(7, 1031), dy(7, 1031), dx(7, 1031);
      x.Fill(1);
      dy.Fill(2);
      Coded codes(7, 1031, bits);
      ASSERT_TRUE(QuantizedActivationForward(Forward(x, y, codes, t.h), TestStream()).ok());
      ASSERT_TRUE(QuantizedActivationBackward(Backward(dy, dx, codes, t.h), TestStream()).ok());
      double worst = 0.0;
      for (int64_t i = 0; i < 7; ++i) {
        for (int64_t c = 0; c < 1031; ++c) {
          const double exact = dy.At(i, c) * SlopeIn64(t.h, x.At(i, c));
          const double bound = t.most * codes.range(i, c).step * std::abs(dy.At(i, c));
          ASSERT_LE(std::abs(dx.At(i, c) - exact), bound + 1e-5 * std::abs(dy.At(i, c)));
          if (std::abs(dy.At(i, c)) > 0.1) {
            worst = std::max(worst, std::abs(dx.At(i, c) - exact) / bound);
          }
        }
      }
      EXPECT_GT(worst, 0.25);
    }
  }
}

TEST(QuantizedActivationTest, SameBitsEveryWay) {
  for (DType dtype : kTypes) {
    ExpectSameBitsEveryWay([&] {
      Matrix x(33, 1031, dtype), y(33, 1031, dtype), dx(33, 1031, dtype);
      x.Fill(3);
      Coded codes(33, 1031, CodeBits::k4);
      EXPECT_TRUE(
          QuantizedActivationForward(Forward(x, y, codes, Activation::kGelu), TestStream()).ok());
      EXPECT_TRUE(
          QuantizedActivationBackward(Backward(y, dx, codes, Activation::kGelu), TestStream())
              .ok());
      Bytes bytes = codes.bytes();
      for (const Matrix* m : {&y, &dx}) {
        bytes.insert(bytes.end(), m->bytes().begin(), m->bytes().end());
      }
      return bytes;
    });
  }
}

TEST(QuantizedActivationTest, RefusesBadArguments) {
  Matrix x(3, 33), y(3, 33);
  x.Fill(1);
  Coded codes(3, 33, CodeBits::k8);
  const Bytes before = y.bytes(), codes_before = codes.bytes();
  const auto refused = [&](auto change) {
    QuantizedActivationForwardParams p = Forward(x, y, codes, Activation::kSilu);
    change(p);
    return Name(QuantizedActivationForward(p, TestStream()));
  };
  using P = QuantizedActivationForwardParams;
  EXPECT_EQ(refused([](P& p) { p.activation.x = nullptr; }), "null pointer: x");
  EXPECT_EQ(refused([](P& p) { p.activation.y_stride = 3; }), "bad stride: y_stride");
  EXPECT_EQ(refused([](P& p) { p.activation.activation = static_cast<Activation>(9); }),
            "bad value: activation");
  EXPECT_EQ(refused([&](P& p) { p.activation.codes = codes.bytes().data(); }),
            "bad value: activation.codes");
  EXPECT_EQ(refused([](P& p) { p.x.ranges = nullptr; }), "null pointer: ranges");
  EXPECT_EQ(refused([](P& p) { p.dither.site.op = kMaxRandomOps; }), "bad value: site.op");
  QuantizedActivationBackwardParams b = Backward(x, y, codes, Activation::kSilu);
  b.activation.x = x.data();
  EXPECT_EQ(Name(QuantizedActivationBackward(b, TestStream())), "bad value: activation.x");
  b = Backward(x, y, codes, Activation::kSilu);
  b.x.codes = nullptr;
  EXPECT_EQ(Name(QuantizedActivationBackward(b, TestStream())), "null pointer: codes");
  EXPECT_EQ(y.bytes(), before);
  EXPECT_EQ(codes.bytes(), codes_before);
}

}  // namespace
}  // namespace snug::kernels
