// RMS norm: normalise and affine, forward and backward, against references in double.
#include "kernels/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

constexpr float kEps = 1e-5f;

NormalizeForwardParams Forward(Matrix& x, Matrix& xhat, Matrix& r) {
  return {.x = x.data(),
          .xhat = xhat.data(),
          .r = r.floats(),
          .N = x.N(),
          .C = x.C(),
          .x_stride = x.stride(),
          .xhat_stride = xhat.stride(),
          .dtype = x.dtype(),
          .eps = kEps};
}

NormalizeBackwardParams Backward(Matrix& dxhat, Matrix& xhat, Matrix& r, Matrix& dx) {
  return {.dxhat = dxhat.data(),
          .xhat = xhat.data(),
          .r = r.floats(),
          .dx = dx.data(),
          .N = dx.N(),
          .C = dx.C(),
          .dxhat_stride = dxhat.stride(),
          .xhat_stride = xhat.stride(),
          .dx_stride = dx.stride(),
          .dtype = dx.dtype()};
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

Reference InverseRms(const Matrix& x) {
  Reference r;
  for (int64_t i = 0; i < x.N(); ++i) {
    double squares = 0.0;
    for (int64_t c = 0; c < x.C(); ++c) squares += x.At(i, c) * x.At(i, c);
    r.push_back(1.0 / std::sqrt(squares / static_cast<double>(x.C()) + static_cast<double>(kEps)));
  }
  return r;
}

// The body once per dtype, height and width.
template <typename Body>
void ForShapes(Body body) {
  for (DType dtype : kTypes) {
    for (int64_t N : kHeights) {
      for (int64_t C : kWidths) {
        SCOPED_TRACE(testing::Message() << N << " x " << C << (SizeOf(dtype) == 2 ? " bf16" : ""));
        body(N, C, dtype);
      }
    }
  }
}

TEST(NormalizeTest, ForwardMatchesReference) {
  ForShapes([](int64_t N, int64_t C, DType dtype) {
    Matrix x(N, C, dtype), xhat(N, C, dtype), r(1, N);
    x.Fill(1, 3.0);
    ASSERT_TRUE(NormalizeForward(Forward(x, xhat, r), TestStream()).ok());
    const Reference expected = InverseRms(x);
    ExpectClose(r, expected);
    ExpectClose(xhat, Map(x, [&](int64_t i, int64_t c) { return x.At(i, c) * expected[i]; }));
  });
}

// dx by the header's formula.
Reference InputGradient(const Matrix& dxhat, const Matrix& xhat, const Matrix& r) {
  Reference mean(xhat.N());
  for (int64_t i = 0; i < xhat.N(); ++i) {
    for (int64_t c = 0; c < xhat.C(); ++c) {
      mean[i] += dxhat.At(i, c) * xhat.At(i, c) / static_cast<double>(xhat.C());
    }
  }
  return Map(xhat, [&](int64_t i, int64_t c) {
    return r.At(0, i) * (dxhat.At(i, c) - xhat.At(i, c) * mean[i]);
  });
}

TEST(NormalizeTest, BackwardMatchesReference) {
  ForShapes([](int64_t N, int64_t C, DType dtype) {
    Matrix x(N, C, dtype), xhat(N, C, dtype), r(1, N), dxhat(N, C, dtype), dx(N, C, dtype);
    x.Fill(1, 2.0);
    dxhat.Fill(2);
    ASSERT_TRUE(NormalizeForward(Forward(x, xhat, r), TestStream()).ok());
    ASSERT_TRUE(NormalizeBackward(Backward(dxhat, xhat, r, dx), TestStream()).ok());
    // With one column dx is what is left of two equal terms; its scale is theirs.
    if (C > 1) ExpectClose(dx, InputGradient(dxhat, xhat, r));
  });
}

// The gradient of sum(dxhat * normalise(x)), without the formula of the header.
TEST(NormalizeTest, BackwardMatchesFiniteDifferences) {
  Matrix x(2, 33), xhat(2, 33), r(1, 2), dxhat(2, 33), dx(2, 33);
  x.Fill(3);
  dxhat.Fill(4);
  ASSERT_TRUE(NormalizeForward(Forward(x, xhat, r), TestStream()).ok());
  ASSERT_TRUE(NormalizeBackward(Backward(dxhat, xhat, r, dx), TestStream()).ok());
  const Reference expected = FiniteDifferences(Dense(x), [&](const std::vector<double>& v) {
    double loss = 0.0;
    for (int64_t i = 0; i < 2; ++i) {
      double squares = 0.0;
      for (int64_t c = 0; c < 33; ++c) squares += v[i * 33 + c] * v[i * 33 + c];
      const double rms = std::sqrt(squares / 33.0 + static_cast<double>(kEps));
      for (int64_t c = 0; c < 33; ++c) loss += dxhat.At(i, c) * v[i * 33 + c] / rms;
    }
    return loss;
  });
  EXPECT_LE(RelativeError(dx, expected), 1e-6);
}

// Written over its operand, or added into what is there.
TEST(NormalizeTest, WorksInPlaceAndAccumulates) {
  for (DType dtype : kTypes) {
    Matrix x(5, 127, dtype), xhat(5, 127, dtype), r(1, 5), dxhat(5, 127, dtype), dx(5, 127, dtype);
    x.Fill(5);
    dxhat.Fill(6);
    ASSERT_TRUE(NormalizeForward(Forward(x, xhat, r), TestStream()).ok());
    ASSERT_TRUE(NormalizeBackward(Backward(dxhat, xhat, r, dx), TestStream()).ok());
    Matrix over = x, sum(5, 127, dtype);
    ASSERT_TRUE(NormalizeForward(Forward(over, over, r), TestStream()).ok());
    EXPECT_EQ(over.bytes(), xhat.bytes());
    sum.Fill(7);
    const Matrix before = sum;
    NormalizeBackwardParams p = Backward(dxhat, xhat, r, sum);
    p.accumulate = true;
    ASSERT_TRUE(NormalizeBackward(p, TestStream()).ok());
    Reference expected = InputGradient(dxhat, xhat, r);
    for (int64_t k = 0; k < 5 * 127; ++k) expected[k] += before.At(k / 127, k % 127);
    ExpectClose(sum, expected);
    ASSERT_TRUE(NormalizeBackward(Backward(dxhat, xhat, r, dxhat), TestStream()).ok());
    EXPECT_EQ(dxhat.bytes(), dx.bytes());
  }
}

TEST(AffineTest, ForwardMatchesReferenceForBothTypesOfGamma) {
  for (DType gamma_dtype : kTypes) {
    ForShapes([&](int64_t N, int64_t C, DType dtype) {
      Matrix xhat(N, C, dtype), gamma(1, C, gamma_dtype), z(N, C, dtype);
      xhat.Fill(8);
      gamma.Fill(9);
      AffineForwardParams p = {.xhat = xhat.data(),
                               .gamma = gamma.data(),
                               .z = z.data(),
                               .N = N,
                               .C = C,
                               .xhat_stride = xhat.stride(),
                               .z_stride = z.stride(),
                               .dtype = dtype,
                               .gamma_dtype = gamma_dtype};
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
  ForShapes([](int64_t N, int64_t C, DType dtype) {
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

// 20,000 rows: a single fp32 chain would be off by 1e-5.
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

TEST(RmsNormTest, SameBitsForAllThreadCountsAndInstructionSets) {
  for (DType dtype : kTypes) {
    Matrix x(67, 1031, dtype), gamma(1, 1031);
    x.Fill(15);
    gamma.Fill(16);
    ExpectSameBitsEveryWay([&] {
      Matrix xhat(67, 1031, dtype), r(1, 67), dx(67, 1031, dtype), dgamma(1, 1031);
      EXPECT_TRUE(NormalizeForward(Forward(x, xhat, r), TestStream()).ok());
      EXPECT_TRUE(NormalizeBackward(Backward(x, xhat, r, dx), TestStream()).ok());
      EXPECT_TRUE(AffineBackward(AffineGradient(dx, gamma, x, dgamma), TestStream()).ok());
      Bytes bytes = xhat.bytes();
      for (const Matrix* m : {&r, &dx, &dgamma}) {
        bytes.insert(bytes.end(), m->bytes().begin(), m->bytes().end());
      }
      return bytes;
    });
  }
}

// Row by row gives what one call gives.
TEST(RmsNormTest, SameBitsHoweverRowsAreDivided) {
  Matrix x(7, 4097), all(7, 4097), apart(7, 4097), r(1, 7), r_apart(1, 7);
  x.Fill(17);
  ASSERT_TRUE(NormalizeForward(Forward(x, all, r), TestStream()).ok());
  for (int64_t i = 0; i < 7; ++i) {
    NormalizeForwardParams p = Forward(x, apart, r_apart);
    p.x = x.row(i);
    p.xhat = apart.row(i);
    p.r = r_apart.floats() + i;
    p.N = 1;
    ASSERT_TRUE(NormalizeForward(p, TestStream()).ok());
  }
  EXPECT_EQ(all.bytes(), apart.bytes());
  EXPECT_EQ(r.bytes(), r_apart.bytes());
}

TEST(RmsNormTest, NanStaysInItsRow) {
  Matrix x(3, 33), xhat(3, 33), r(1, 3);
  x.Fill(18);
  x.Set(1, 32, std::numeric_limits<double>::quiet_NaN());
  ASSERT_TRUE(NormalizeForward(Forward(x, xhat, r), TestStream()).ok());
  EXPECT_TRUE(std::isnan(xhat.At(1, 0)));
  EXPECT_TRUE(std::isfinite(xhat.At(0, 32)) && std::isfinite(xhat.At(2, 0)));
}

// Each bad argument is named, and nothing is written.
TEST(RmsNormTest, RefusesBadArguments) {
  Matrix x(3, 33), xhat(3, 33), r(1, 3);
  x.Fill(19);
  const Bytes before = xhat.bytes();
  const auto refused = [&](auto change) {
    NormalizeForwardParams p = Forward(x, xhat, r);
    change(p);
    return Name(NormalizeForward(p, TestStream()));
  };
  using P = NormalizeForwardParams;
  EXPECT_EQ(refused([](P& p) { p.x = nullptr; }), "null pointer: x");
  EXPECT_EQ(refused([](P& p) { p.r = nullptr; }), "null pointer: r");
  EXPECT_EQ(refused([](P& p) { p.N = -1; }), "bad shape: N");
  EXPECT_EQ(refused([](P& p) { p.C = 0; }), "bad shape: C");
  EXPECT_EQ(refused([](P& p) { p.xhat_stride = 32; }), "bad stride: xhat_stride");
  EXPECT_EQ(refused([](P& p) { p.dtype = static_cast<DType>(7); }), "bad dtype: dtype");
  EXPECT_EQ(refused([](P& p) { p.eps = -1.0f; }), "bad value: eps");
  EXPECT_EQ(refused([](P& p) { p.eps = std::nanf(""); }), "bad value: eps");
  if (OnCpu()) {
    EXPECT_EQ(Name(NormalizeForward(Forward(x, xhat, r), reinterpret_cast<Stream>(&x))),
              "no device for this stream: stream");
  }
  EXPECT_EQ(xhat.bytes(), before);
}

}  // namespace
}  // namespace snug::kernels
