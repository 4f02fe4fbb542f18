// The affine step of a norm, forward and backward, against references in double.
#include "kernels/affine.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

AffineForwardParams Forward(const Matrix& xhat, const Matrix& gamma, Matrix& z) {
  return {.xhat = xhat.data(),
          .gamma = gamma.data(),
          .z = z.data(),
          .N = z.N(),
          .C = z.C(),
          .xhat_stride = xhat.stride(),
          .z_stride = z.stride(),
          .dtype = z.dtype(),
          .gamma_dtype = gamma.dtype()};
}

AffineBackwardParams AffineGradient(Matrix& dz, Matrix& gamma, Matrix& xhat, Matrix& dgamma) {
  static Bytes workspace(1 << 20);
  return {.dz = dz.data(),
          .gamma = gamma.data(),
          .xhat = xhat.data(),
          .dxhat = nullptr,
          .dgamma = dgamma.floats(),
          .N = dz.N(),
          .C = dz.C(),
          .dz_stride = dz.stride(),
          .xhat_stride = xhat.stride(),
          .dxhat_stride = 0,
          .dtype = dz.dtype(),
          .gamma_dtype = gamma.dtype(),
          .workspace = workspace.data()};
}

TEST(AffineTest, ForwardMatchesReferenceForBothTypesOfGamma) {
  for (DType gamma_dtype : kTypes) {
    ForMatrices([&](int64_t N, int64_t C, DType dtype) {
      Matrix xhat(N, C, dtype), gamma(1, C, gamma_dtype), z(N, C, dtype);
      xhat.Fill(8);
      gamma.Fill(9);
      AffineForwardParams p = Forward(xhat, gamma, z);
      ASSERT_TRUE(AffineForward(p, TestStream()).ok());
      ExpectClose(z, Map(z, [&](int64_t i, int64_t c) { return xhat.At(i, c) * gamma.At(0, c); }));
      p.z = xhat.data();
      p.z_stride = xhat.stride();
      ASSERT_TRUE(AffineForward(p, TestStream()).ok());
      EXPECT_EQ(xhat.bytes(), z.bytes());
    });
  }
}

TEST(AffineTest, BackwardMatchesReference) {
  ForMatrices([](int64_t N, int64_t C, DType dtype) {
    Matrix dz(N, C, dtype), xhat(N, C, dtype), gamma(1, C), dxhat(N, C, dtype), dgamma(1, C);
    dz.Fill(10);
    xhat.Fill(11);
    gamma.Fill(12);
    AffineBackwardParams p = AffineGradient(dz, gamma, xhat, dgamma);
    p.dxhat = dxhat.data();
    p.dxhat_stride = dxhat.stride();
    ASSERT_TRUE(AffineBackward(p, TestStream()).ok());
    ExpectClose(dxhat, Map(dz, [&](int64_t i, int64_t c) { return dz.At(i, c) * gamma.At(0, c); }));
    const Reference expected = Map(dgamma, [&](int64_t, int64_t c) {
      double sum = 0.0;
      for (int64_t i = 0; i < N; ++i) sum += dz.At(i, c) * xhat.At(i, c);
      return sum;
    });
    ExpectClose(dgamma, expected);
    p.accumulate = true;
    p.dxhat = dz.data();
    p.dxhat_stride = dz.stride();
    ASSERT_TRUE(AffineBackward(p, TestStream()).ok());
    ExpectClose(dgamma, Map(dgamma, [&](int64_t, int64_t c) { return 2.0 * expected[c]; }), 2.0);
    EXPECT_EQ(dz.bytes(), dxhat.bytes());
  });
}

// Weights stored less one, as Gemma has them: a factor of 1 + gamma, and gamma's gradient as ever.
TEST(AffineTest, AddsTheOffsetToGamma) {
  for (DType dtype : kTypes) {
    Matrix xhat(3, 33, dtype), gamma(1, 33, dtype), z(3, 33, dtype), dxhat(3, 33, dtype),
        dgamma(1, 33), plain(1, 33);
    xhat.Fill(21);
    gamma.Fill(22, 0.3);
    ASSERT_TRUE(AffineForward({.xhat = xhat.data(),
                               .gamma = gamma.data(),
                               .z = z.data(),
                               .N = 3,
                               .C = 33,
                               .xhat_stride = xhat.stride(),
                               .z_stride = z.stride(),
                               .dtype = dtype,
                               .gamma_dtype = dtype,
                               .offset = 1.0f},
                              TestStream())
                    .ok());
    const auto scaled = [&](int64_t i, int64_t c) {
      return xhat.At(i, c) * (1.0 + gamma.At(0, c));
    };
    ExpectClose(z, Map(z, scaled));
    AffineBackwardParams p = AffineGradient(xhat, gamma, xhat, plain);  // xhat stands in for dz.
    ASSERT_TRUE(AffineBackward(p, TestStream()).ok());
    p.dgamma = dgamma.floats();
    p.dxhat = dxhat.data();
    p.dxhat_stride = dxhat.stride();
    p.offset = 1.0f;
    ASSERT_TRUE(AffineBackward(p, TestStream()).ok());
    ExpectClose(dxhat, Map(dxhat, scaled));
    EXPECT_EQ(dgamma.bytes(), plain.bytes());
  }
}

// 20,000 rows: a single fp32 chain would be off by 1e-5.
TEST(AffineTest, GradientOfGammaStaysAccurateOverManyRows) {
  Matrix dz(20000, 17), xhat(20000, 17), gamma(1, 17), dgamma(1, 17);
  for (int64_t i = 0; i < dz.N(); ++i) {
    for (int64_t c = 0; c < 17; ++c) dz.Set(i, c, 0.1 + 1e-3 * static_cast<double>(c + i % 7));
  }
  xhat.Fill(13);
  for (int64_t i = 0; i < dz.N(); ++i) xhat.Set(i, 3, 1.1);
  gamma.Fill(14);
  ASSERT_TRUE(AffineBackward(AffineGradient(dz, gamma, xhat, dgamma), TestStream()).ok());
  const Reference expected = Map(dgamma, [&](int64_t, int64_t c) {
    double sum = 0.0;
    for (int64_t i = 0; i < dz.N(); ++i) sum += dz.At(i, c) * xhat.At(i, c);
    return sum;
  });
  EXPECT_LE(RelativeError(dgamma, expected), 2e-7);
}

// A layer norm's: beta is added, its gradient is the sum of dz, with and without that of gamma.
TEST(AffineTest, AddsBetaAndSumsItsGradient) {
  ForMatrices([](int64_t N, int64_t C, DType dtype) {
    Matrix xhat(N, C, dtype), gamma(1, C, dtype), beta(1, C, dtype), z(N, C, dtype),
        dz(N, C, dtype), dgamma(1, C), dbeta(1, C);
    xhat.Fill(23);
    gamma.Fill(24);
    beta.Fill(25);
    dz.Fill(26);
    AffineForwardParams forward = Forward(xhat, gamma, z);
    forward.beta = beta.data();
    ASSERT_TRUE(AffineForward(forward, TestStream()).ok());
    ExpectClose(z, Map(z, [&](int64_t i, int64_t c) {
                  return xhat.At(i, c) * gamma.At(0, c) + beta.At(0, c);
                }));
    AffineBackwardParams p = AffineGradient(dz, gamma, xhat, dgamma);
    p.dbeta = dbeta.floats();
    ASSERT_TRUE(AffineBackward(p, TestStream()).ok());
    const auto sum = [&](bool of_products) {
      return Map(dbeta, [&, of_products](int64_t, int64_t c) {
        double total = 0.0;
        for (int64_t i = 0; i < N; ++i) total += dz.At(i, c) * (of_products ? xhat.At(i, c) : 1.0);
        return total;
      });
    };
    ExpectClose(dgamma, sum(true));
    ExpectClose(dbeta, sum(false));
    Matrix alone(1, C);
    p.dgamma = nullptr;
    p.xhat = nullptr;
    p.dbeta = alone.floats();
    ASSERT_TRUE(AffineBackward(p, TestStream()).ok());
    EXPECT_EQ(alone.bytes(), dbeta.bytes());
  });
}

TEST(AffineTest, SameBitsForAllThreadCountsAndInstructionSets) {
  for (DType dtype : kTypes) {
    Matrix dz(67, 1031, dtype), xhat(67, 1031, dtype), gamma(1, 1031);
    dz.Fill(27);
    xhat.Fill(28);
    gamma.Fill(29);
    ExpectSameBitsEveryWay([&] {
      Matrix dgamma(1, 1031), dbeta(1, 1031);
      AffineBackwardParams p = AffineGradient(dz, gamma, xhat, dgamma);
      p.dbeta = dbeta.floats();
      EXPECT_TRUE(AffineBackward(p, TestStream()).ok());
      Bytes bytes = dgamma.bytes();
      bytes.insert(bytes.end(), dbeta.bytes().begin(), dbeta.bytes().end());
      return bytes;
    });
  }
}

TEST(AffineTest, RefusesBadArguments) {
  Matrix dz(3, 33), xhat(3, 33), gamma(1, 33), dgamma(1, 33);
  const Bytes before = dgamma.bytes();
  const auto refused = [&](auto change) {
    AffineBackwardParams p = AffineGradient(dz, gamma, xhat, dgamma);
    change(p);
    return Name(AffineBackward(p, TestStream()));
  };
  using P = AffineBackwardParams;
  EXPECT_EQ(refused([](P& p) { p.xhat = nullptr; }), "null pointer: xhat");
  EXPECT_EQ(refused([](P& p) { p.dz_stride = 32; }), "bad stride: dz_stride");
  EXPECT_EQ(refused([](P& p) { p.gamma_dtype = static_cast<DType>(9); }), "bad dtype: gamma_dtype");
  EXPECT_EQ(refused([&](P& p) {
              p.dxhat = p.dgamma;
              p.gamma = nullptr;
            }),
            "null pointer: gamma");
  if (!OnCpu()) {
    EXPECT_EQ(refused([](P& p) { p.workspace = nullptr; }), "null pointer: workspace");
  }
  EXPECT_EQ(dgamma.bytes(), before);
}

}  // namespace
}  // namespace snug::kernels
