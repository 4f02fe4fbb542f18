// Codes of one and two bits: the constants, the codes that forward writes, and backward from them
// (LMBP-1 to LMBP-9).
#include "kernels/codes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/activation_testing.h"

namespace snug::kernels {
namespace {

// The sum of ReLUs whose slopes a TwoBit has: a_i = slope[i] - slope[i - 1].
double FitAt(const TwoBit& two_bit, double x) {
  double sum = 0.0;
  for (int i = 0; i < 3; ++i) {
    const double a = static_cast<double>(two_bit.slope[i + 1]) - two_bit.slope[i];
    sum += a * std::max(x - static_cast<double>(two_bit.threshold[i]), 0.0);
  }
  return sum;
}

// The integral of (h - fit)^2, by Simpson's rule between the thresholds, where all is smooth.
double Energy(Activation activation, const TwoBit& two_bit) {
  const double far = activation == Activation::kSilu ? 60.0 : 12.0;
  const double bounds[] = {-far, two_bit.threshold[0], two_bit.threshold[1], two_bit.threshold[2],
                           far};
  constexpr int kSteps = 4000;
  double sum = 0.0;
  for (int piece = 0; piece < 4; ++piece) {
    const double step = (bounds[piece + 1] - bounds[piece]) / kSteps;
    for (int i = 0; i <= kSteps; ++i) {
      const double x = bounds[piece] + i * step;
      const double weight = i == 0 || i == kSteps ? 1.0 : i % 2 == 1 ? 4.0 : 2.0;
      sum += weight * std::pow(ValueIn64(activation, x) - FitAt(two_bit, x), 2) * step / 3.0;
    }
  }
  return sum;
}

// LMBP-1: 0 far left, x far right, and the page's energies.
TEST(CodesTest, Lmbp1ConstantsAreThePapers) {
  for (const TwoBit& t : {kReGelu2, kReSilu2, kReGeluTanh2}) {
    double sum = 0.0, moment = 0.0;
    for (int i = 0; i < 3; ++i) {
      const double a = static_cast<double>(t.slope[i + 1]) - t.slope[i];
      sum += a;
      moment += a * static_cast<double>(t.threshold[i]);
    }
    EXPECT_NEAR(sum, 1.0, 1e-12);
    EXPECT_NEAR(moment, 0.0, 1e-6);  // The constants are rounded to fp32.
  }
  EXPECT_NEAR(Energy(Activation::kGelu, kReGelu2), 0.0095093, 1e-6);
  EXPECT_NEAR(Energy(Activation::kSilu, kReSilu2), 0.0399438, 1e-6);
  // As fp32, to the page's digits.
  const double gelu[] = {-3.18588090, -0.00117882, 3.19083261};
  const double silu[] = {-6.30504608, -0.00086849, 6.32581520};
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(kReGelu2.threshold[i], gelu[i], 5e-9);
    EXPECT_NEAR(kReSilu2.threshold[i], silu[i], 5e-9);
  }
}

// The fits of kernels/fit_two_bit.py have the least energy there is: the page's, where it says it,
// less than the paper's own, and more to all sides, thresholds and slopes apart.
TEST(CodesTest, FittedConstantsAreOptimal) {
  EXPECT_NEAR(Energy(Activation::kGelu, kReGelu2Symmetric), 0.00950694, 2e-8);
  EXPECT_NEAR(Energy(Activation::kSilu, kReSilu2Symmetric), 0.03994132, 2e-8);
  EXPECT_NEAR(Energy(Activation::kGeluTanh, kReGeluTanh2), 0.00955215, 2e-8);
  // GELU's constants are not those of its tanh form, nor the other way round.
  EXPECT_GT(Energy(Activation::kGeluTanh, kReGelu2Symmetric), 0.00955215 + 1e-7);
  for (Activation activation : kSmooth) {
    const TwoBit best = activation == Activation::kGelu   ? kReGelu2Symmetric
                        : activation == Activation::kSilu ? kReSilu2Symmetric
                                                          : kReGeluTanh2;
    const double least = Energy(activation, best);
    // By break points (x1, 0), (x2, y2), (x3, x3), the page's four free numbers.
    for (int moved = 0; moved < 4; ++moved) {
      for (double by : {-0.02, 0.02}) {
        double x1 = best.threshold[0], x2 = best.threshold[1], x3 = best.threshold[2];
        double y2 = static_cast<double>(best.slope[1]) * (x2 - x1);
        (moved == 0 ? x1 : moved == 1 ? x2 : moved == 2 ? x3 : y2) += by;
        const TwoBit other = {
            {static_cast<float>(x1), static_cast<float>(x2), static_cast<float>(x3)},
            {0.0f, static_cast<float>(y2 / (x2 - x1)), static_cast<float>((x3 - y2) / (x3 - x2)),
             1.0f}};
        EXPECT_GT(Energy(activation, other), least + 1e-7) << moved << " " << by;
      }
    }
  }
}

// LMBP-9: with the symmetric constants the slopes of x and -x add up to 1.
TEST(CodesTest, Lmbp9SymmetricSlopesAddUpToOne) {
  for (const TwoBit& t : {kReGelu2Symmetric, kReSilu2Symmetric, kReGeluTanh2}) {
    for (double x : {1e-3, 0.5, 3.0, 3.2, 6.0, 6.4, 100.0}) {
      EXPECT_NEAR(t.slope[CodeOf(x, t)] + t.slope[CodeOf(-x, t)], 1.0, 1e-6);
    }
  }
  EXPECT_NE(kReGelu2.slope[CodeOf(-1e-3, kReGelu2)] + kReGelu2.slope[CodeOf(1e-3, kReGelu2)], 1.0f);
}

// LMBP-3: at each threshold, a step to either side of it, zeros, infinities and NaN.
TEST(CodesTest, Lmbp3CodesAreThoseOfTheDefinition) {
  for (Activation activation : kActivations) {
    const TwoBit two_bit = TwoBitOf(activation);
    std::vector<float> xs = {0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, NAN, -NAN};
    for (float t : two_bit.threshold) {
      xs.insert(xs.end(), {t, std::nextafter(t, INFINITY), std::nextafter(t, -INFINITY)});
    }
    const int64_t C = static_cast<int64_t>(xs.size());
    Matrix x(1, C), y(1, C);
    CodeRows codes(1, C, 2);
    for (int64_t c = 0; c < C; ++c) x.floats()[c] = xs[c];
    ActivationForwardParams p = Forward(x, y, activation);
    p.codes = codes.data();
    p.code_stride = codes.stride();
    ASSERT_TRUE(ActivationForward(p, TestStream()).ok());
    for (int64_t c = 0; c < C; ++c) {
      EXPECT_EQ(codes.At(0, c), CodeOf(static_cast<double>(xs[c]), two_bit)) << xs[c];
    }
  }
}

// LMBP-4: the page's byte; every width that leaves another tail; all alignments of the operands.
TEST(CodesTest, Lmbp4PacksAsThePageSays) {
  Matrix x(1, 4), y(1, 4);
  for (int64_t c = 0; c < 4; ++c) x.Set(0, c, std::vector{-10.0, -1.0, 0.5, 10.0}[c]);
  uint8_t* byte = static_cast<uint8_t*>(AllocateShared(1));
  ActivationForwardParams p = Forward(x, y, Activation::kGelu);
  p.codes = byte;
  p.code_stride = 1;
  ASSERT_TRUE(ActivationForward(p, TestStream()).ok());
  WaitForKernels();
  EXPECT_EQ(*byte, 0xE4);
  FreeShared(byte);
}

void ExpectCodes(int64_t N, int64_t C, DType dtype, int64_t shift) {
  SCOPED_TRACE(testing::Message() << N << " x " << C << " + " << shift);
  Matrix x(N, C + shift, dtype), y(N, C + shift, dtype);
  CodeRows codes(N, C, 2), mask(N, C, 1);
  x.Fill(1, 3.0);
  ActivationForwardParams p = Forward(x, y, Activation::kRelu);
  p.x = static_cast<const uint8_t*>(x.data()) + shift * SizeOf(dtype);
  p.y = static_cast<uint8_t*>(y.data()) + shift * SizeOf(dtype);
  p.C = C;
  p.codes = codes.data();
  p.code_stride = codes.stride();
  p.mask = mask.data();
  p.mask_stride = mask.stride();
  p.two_bit = kReGelu2;
  ASSERT_TRUE(ActivationForward(p, TestStream()).ok());
  EXPECT_TRUE(codes.GapsUntouched() && mask.GapsUntouched() && y.GapsUntouched());
  for (int64_t i = 0; i < N; ++i) {
    for (int64_t c = 0; c < C; ++c) {
      const double at = x.At(i, c + shift);
      ASSERT_EQ(codes.At(i, c), CodeOf(at, kReGelu2)) << i << ", " << c;
      ASSERT_EQ(mask.At(i, c), at > 0.0 ? 1 : 0) << i << ", " << c;
    }
  }
}

TEST(CodesTest, Lmbp4SameCodesForAllWidthsAndAlignments) {
  for (DType dtype : kTypes) {
    for (int64_t C = 1; C <= 17; ++C) ExpectCodes(3, C, dtype, 0);
    for (int64_t C : {4095, 4096, 4097}) ExpectCodes(1, C, dtype, 0);
    for (int64_t shift = 1; shift < 8; ++shift) ExpectCodes(2, 129 + 8 - shift, dtype, shift);
    ExpectCodes(OnCpu() ? 197 : 5, 767, dtype, 0);
  }
}

CodeBackwardParams Backward(Matrix& dy, CodeRows& codes, Matrix& dx, const TwoBit& two_bit) {
  CodeBackwardParams p = {.dy = dy.data(),
                          .codes = codes.data(),
                          .dx = dx.data(),
                          .N = dy.N(),
                          .C = dy.C(),
                          .dy_stride = dy.stride(),
                          .code_stride = codes.stride(),
                          .dx_stride = dx.stride(),
                          .dtype = dy.dtype()};
  for (int i = 0; i < 4; ++i) p.slope[i] = two_bit.slope[i];
  return p;
}

// Forward of an activation with codes.
CodeRows CodesOf(Matrix& x, Activation activation) {
  Matrix y(x.N(), x.C(), x.dtype());
  CodeRows codes(x.N(), x.C(), 2);
  ActivationForwardParams p = Forward(x, y, activation);
  p.codes = codes.data();
  p.code_stride = codes.stride();
  EXPECT_TRUE(ActivationForward(p, TestStream()).ok());
  WaitForKernels();
  return codes;
}

// LMBP-5: dx is dy times the slope of the code, rounded once, bit by bit; LMBP-8: from nothing but
// the codes, ceil(C / 4) bytes a row.
TEST(CodesTest, Lmbp5BackwardIsDyTimesTheSlope) {
  for (Activation activation : kActivations) {
    const TwoBit two_bit = TwoBitOf(activation);
    for (DType dtype : kTypes) {
      for (int64_t C : kWidths) {
        Matrix x(3, C, dtype), dy(3, C, dtype), dx(3, C, dtype), expected(3, C, dtype);
        x.Fill(2, 4.0);
        dy.Fill(3);
        CodeRows codes = CodesOf(x, activation);
        for (int64_t k = 0; k < 3 * C; ++k) {
          const float slope = two_bit.slope[CodeOf(x.At(k / C, k % C), two_bit)];
          expected.Set(k / C, k % C,
                       static_cast<double>(static_cast<float>(dy.At(k / C, k % C)) * slope));
        }
        x.Fill(4);  // It is not needed any more.
        ASSERT_TRUE(CodeBackward(Backward(dy, codes, dx, two_bit), TestStream()).ok());
        EXPECT_EQ(dx.bytes(), expected.bytes());
        EXPECT_EQ(codes.stride() - 1, CodeBytes(C));
        ASSERT_TRUE(CodeBackward(Backward(dy, codes, dy, two_bit), TestStream()).ok());
        EXPECT_EQ(dy.bytes(), expected.bytes());
      }
    }
  }
}

// LMBP-6: it is the gradient of the sum of ReLUs, and it is not that of the activation: within the
// page's bounds of it, and at x = 0 as far off as these say.
TEST(CodesTest, Lmbp6GradientIsThatOfTheSumOfReLUs) {
  constexpr int64_t kPoints = 4001;
  for (Activation activation : {Activation::kGelu, Activation::kSilu}) {
    const TwoBit two_bit = TwoBitOf(activation);
    Matrix x(1, kPoints), one(1, kPoints), dx(1, kPoints);
    for (int64_t c = 0; c < kPoints; ++c) {
      x.Set(0, c, -10.0 + 20.0 * static_cast<double>(c) / (kPoints - 1) + 1e-3);
      one.Set(0, c, 1.0);
    }
    CodeRows codes = CodesOf(x, activation);
    ASSERT_TRUE(CodeBackward(Backward(one, codes, dx, two_bit), TestStream()).ok());
    double furthest = 0.0;
    for (int64_t c = 0; c < kPoints; ++c) {
      const double at = x.At(0, c), step = 1e-4;
      const double slope = (FitAt(two_bit, at + step) - FitAt(two_bit, at - step)) / (2.0 * step);
      ASSERT_NEAR(dx.At(0, c), slope, 1e-6) << at;
      furthest = std::max(furthest, std::abs(dx.At(0, c) - SlopeIn64(activation, at)));
    }
    EXPECT_LE(furthest, activation == Activation::kGelu ? 0.5497 : 0.5407);
    EXPECT_GE(furthest, 0.5);
  }
}

// LMBP-7: code frequencies and the error of the slope over normal inputs.
TEST(CodesTest, Lmbp7StatisticsAreThePages) {
  const int64_t N = OnCpu() ? 1000 : 30;
  for (Activation activation : {Activation::kGelu, Activation::kSilu}) {
    const bool gelu = activation == Activation::kGelu;
    const TwoBit two_bit = TwoBitOf(activation);
    Matrix x(N, 1000);
    x.Fill(5);
    const CodeRows codes = CodesOf(x, activation);
    double frequency[4] = {}, error = 0.0, bias = 0.0;
    for (int64_t k = 0; k < N * 1000; ++k) {
      const int code = codes.At(k / 1000, k % 1000);
      const double off = two_bit.slope[code] - SlopeIn64(activation, x.At(k / 1000, k % 1000));
      frequency[code] += 1.0 / static_cast<double>(N * 1000);
      error += off * off / static_cast<double>(N * 1000);
      bias += off / static_cast<double>(N * 1000);
    }
    const double deviation = 5.0 / std::sqrt(static_cast<double>(N * 1000));
    EXPECT_NEAR(frequency[0], gelu ? 0.0007 : 0.0, 0.03 * deviation + 1e-4);
    EXPECT_NEAR(frequency[1], gelu ? 0.4988 : 0.4997, 0.5 * deviation + 1e-4);
    EXPECT_NEAR(frequency[3], gelu ? 0.0007 : 0.0, 0.03 * deviation + 1e-4);
    EXPECT_NEAR(error, gelu ? 0.0580 : 0.0842, 0.02 * (gelu ? 0.0580 : 0.0842));
    // Within five deviations of the mean; the page's 1e-3 at its million.
    EXPECT_NEAR(bias, 3e-4, std::max(1e-3, 0.3 * deviation));
  }
}

// One bit: ReLU's backward is exact from its mask, and adds into what is there.
TEST(CodesTest, MaskGivesTheExactGradientOfReLU) {
  for (DType dtype : kTypes) {
    for (int64_t C : kWidths) {
      Matrix x(3, C, dtype), y(3, C, dtype), dy(3, C, dtype), dx(3, C, dtype);
      CodeRows mask(3, C, 1);
      x.Fill(6);
      dy.Fill(7);
      dx.Fill(8);
      const Matrix before = dx;
      ActivationForwardParams p = Forward(x, y, Activation::kRelu);
      p.mask = mask.data();
      p.mask_stride = mask.stride();
      ASSERT_TRUE(ActivationForward(p, TestStream()).ok());
      CodeBackwardParams b = Backward(dy, mask, dx, {{}, {0.0f, 1.0f}});
      b.bits = 1;
      b.accumulate = true;
      ASSERT_TRUE(CodeBackward(b, TestStream()).ok());
      ExpectClose(dx, Map(dx, [&](int64_t i, int64_t c) {
                    return before.At(i, c) + (x.At(i, c) > 0.0 ? dy.At(i, c) : 0.0);
                  }));
    }
  }
}

TEST(CodesTest, SameBitsForAllThreadCountsAndInstructionSets) {
  for (DType dtype : kTypes) {
    Matrix x(67, 1031, dtype);
    x.Fill(9, 3.0);
    ExpectSameBitsEveryWay([&] {
      CodeRows codes = CodesOf(x, Activation::kSilu);
      Matrix dx(67, 1031, dtype);
      EXPECT_TRUE(CodeBackward(Backward(x, codes, dx, kReSilu2), TestStream()).ok());
      Bytes bytes = codes.bytes();
      bytes.insert(bytes.end(), dx.bytes().begin(), dx.bytes().end());
      return bytes;
    });
  }
}

TEST(CodesTest, RefusesBadArguments) {
  Matrix dy(3, 33), dx(3, 33);
  CodeRows codes(3, 33, 2);
  const Bytes before = dx.bytes();
  const auto refused = [&](auto change) {
    CodeBackwardParams p = Backward(dy, codes, dx, kReGelu2);
    change(p);
    return Name(CodeBackward(p, TestStream()));
  };
  using P = CodeBackwardParams;
  EXPECT_EQ(refused([](P& p) { p.codes = nullptr; }), "null pointer: codes");
  EXPECT_EQ(refused([](P& p) { p.code_stride = 8; }), "bad stride: code_stride");
  EXPECT_EQ(refused([](P& p) { p.bits = 4; }), "bad value: bits");
  EXPECT_EQ(refused([](P& p) { p.dx = nullptr; }), "null pointer: dx");
  EXPECT_EQ(dx.bytes(), before);
}

}  // namespace
}  // namespace snug::kernels
