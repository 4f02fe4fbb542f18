// What normalise does in the same pass: the affine step, a residual, an fp32 stream.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/affine.h"
#include "tests/kernels/norm_testing.h"

namespace snug::kernels {
namespace {

// A block's norm: x and residual in, h, z and what backward needs out.
struct Fused {
  Matrix x, residual, h, xhat, z, gamma, beta, r;
  NormalizeForwardParams p;

  // The residual is fp32 with `wide`; gamma and beta are of the layers' type.
  Fused(int64_t N, int64_t C, DType dtype, bool wide, Norm norm)
      : x(N, C, dtype),
        residual(N, C, wide ? DType::kF32 : dtype),
        h(N, C, wide ? DType::kF32 : dtype),
        xhat(N, C, dtype),
        z(N, C, dtype),
        gamma(1, C, dtype),
        beta(1, C, dtype),
        r(1, N),
        p(Forward(x.Fill(1), xhat, r, norm)) {
    residual.Fill(2, 3.0);
    gamma.Fill(3);
    beta.Fill(4);
    p.wide = wide;
    p.residual = residual.data();
    p.residual_stride = residual.stride();
    p.h = h.data();
    p.h_stride = h.stride();
    p.z = z.data();
    p.z_stride = z.stride();
    p.gamma = gamma.data();
    p.gamma_dtype = dtype;
    if (norm == Norm::kLayer) p.beta = beta.data();
  }
  double Affine(double xhat_at, int64_t c) const {
    return xhat_at * (static_cast<double>(p.offset) + gamma.At(0, c)) +
           (p.beta == nullptr ? 0.0 : beta.At(0, c));
  }
};

template <typename Body>
void ForStreams(Body body) {
  ForShapes([&](int64_t N, int64_t C, DType dtype, Norm norm) {
    if (N == 3 && !OnCpu()) return;
    for (bool wide : {false, true}) {
      if (!wide || dtype != DType::kF32) body(N, C, dtype, wide, norm);
    }
  });
}

TEST(NormalizeFusedTest, AddsTheResidualAndAppliesTheAffineStep) {
  ForStreams([](int64_t N, int64_t C, DType dtype, bool wide, Norm norm) {
    Fused f(N, C, dtype, wide, norm);
    ASSERT_TRUE(NormalizeForward(f.p, TestStream()).ok());
    ExpectClose(f.h,
                Map(f.h, [&](int64_t i, int64_t c) { return f.x.At(i, c) + f.residual.At(i, c); }));
    const Statistics rows = StatisticsOf(f.h, norm, kEps);
    ExpectClose(f.r, rows.r);
    ExpectClose(f.xhat, Normalized(f.h, rows));
    ExpectClose(f.z, Map(f.z, [&](int64_t i, int64_t c) { return f.Affine(f.xhat.At(i, c), c); }));
  });
}

// As the two steps one after the other, bit by bit: a recompute of z from the stash gives z.
TEST(NormalizeFusedTest, GivesTheBitsOfItsSteps) {
  for (Norm norm : kNorms) {
    for (DType dtype : kTypes) {
      Fused f(5, 127, dtype, false, norm);
      ASSERT_TRUE(NormalizeForward(f.p, TestStream()).ok());
      Matrix xhat(5, 127, dtype), z(5, 127, dtype), r(1, 5);
      ASSERT_TRUE(NormalizeForward(Forward(f.h, xhat, r, norm), TestStream()).ok());
      ASSERT_TRUE(AffineForward({.xhat = xhat.data(),
                                 .gamma = f.gamma.data(),
                                 .z = z.data(),
                                 .N = 5,
                                 .C = 127,
                                 .xhat_stride = xhat.stride(),
                                 .z_stride = z.stride(),
                                 .dtype = dtype,
                                 .gamma_dtype = dtype,
                                 .beta = f.p.beta},
                                TestStream())
                      .ok());
      EXPECT_EQ(xhat.bytes(), f.xhat.bytes());
      EXPECT_EQ(r.bytes(), f.r.bytes());
      EXPECT_EQ(z.bytes(), f.z.bytes());
    }
  }
}

// Gemma's: z is rounded once, of an xhat that was not.
TEST(NormalizeFusedTest, RoundsOnceWhereAsked) {
  for (Norm norm : kNorms) {
    Fused f(4, 2048, DType::kBF16, true, norm);
    f.p.offset = 1.0f;
    f.p.round_xhat = false;
    ASSERT_TRUE(NormalizeForward(f.p, TestStream()).ok());
    const Reference exact = Normalized(f.h, StatisticsOf(f.h, norm, kEps));
    const Reference z =
        Map(f.z, [&](int64_t i, int64_t c) { return f.Affine(exact[i * 2048 + c], c); });
    ExpectClose(f.z, z);
    // The control: rounded twice it is further off than one rounding could be.
    f.p.round_xhat = true;
    ASSERT_TRUE(NormalizeForward(f.p, TestStream()).ok());
    int64_t beyond = 0;
    for (int64_t k = 0; k < 4 * 2048; ++k) {
      beyond += std::abs(f.z.At(k / 2048, k % 2048) - z[k]) > 1.01 * 0x1p-8 * std::abs(z[k]) + 1e-5;
    }
    EXPECT_GT(beyond, 100);
  }
}

// z alone, with nothing kept for a backward; h over the residual; z over x.
TEST(NormalizeFusedTest, WritesOnlyWhatIsAskedAndInPlace) {
  for (DType dtype : kTypes) {
    for (bool wide : {false, true}) {
      Fused f(5, 127, dtype, wide, Norm::kLayer), g(5, 127, dtype, wide, Norm::kLayer);
      ASSERT_TRUE(NormalizeForward(f.p, TestStream()).ok());
      const Bytes untouched = g.xhat.bytes();
      g.p.xhat = nullptr;
      g.p.r = nullptr;
      g.p.h = g.residual.data();
      g.p.h_stride = g.residual.stride();
      g.p.z = g.x.data();
      g.p.z_stride = g.x.stride();
      ASSERT_TRUE(NormalizeForward(g.p, TestStream()).ok());
      EXPECT_EQ(g.residual.bytes(), f.h.bytes());
      EXPECT_EQ(g.x.bytes(), f.z.bytes());
      EXPECT_EQ(g.xhat.bytes(), untouched);
    }
  }
}

// An fp32 input without a residual, and its gradient added into an fp32 stream.
TEST(NormalizeFusedTest, ReadsAndWritesAnFp32Stream) {
  for (Norm norm : kNorms) {
    for (int64_t C : {33, 2048, 20000}) {
      Matrix x(3, C), xhat(3, C, DType::kBF16), r(1, 3), dz(3, C, DType::kBF16), dx(3, C);
      x.Fill(5);
      dz.Fill(6);
      dx.Fill(7);
      const Matrix before = dx;
      NormalizeForwardParams p = Forward(x, xhat, r, norm);
      p.wide = true;
      ASSERT_TRUE(NormalizeForward(p, TestStream()).ok());
      ExpectClose(xhat, Normalized(x, StatisticsOf(x, norm, kEps)));
      NormalizeBackwardParams b = Backward(dz, xhat, r, dx, norm);
      b.wide = true;
      b.accumulate = true;
      ASSERT_TRUE(NormalizeBackward(b, TestStream()).ok());
      Reference expected = InputGradient(dz, xhat, r, norm);
      for (int64_t k = 0; k < 3 * C; ++k) expected[k] += before.At(k / C, k % C);
      ExpectClose(dx, expected);
    }
  }
}

// Backward through the affine step, from xhat and from the input: the gradient of sum(dz * z).
TEST(NormalizeFusedTest, BackwardThroughGammaMatchesReference) {
  ForStreams([](int64_t N, int64_t C, DType dtype, bool wide, Norm norm) {
    if (C == 1) return;  // What is left of equal terms.
    Fused f(N, C, dtype, wide, norm);
    Matrix dz(N, C, dtype), dx(N, C, wide ? DType::kF32 : dtype);
    dz.Fill(8);
    f.p.offset = 1.0f;
    ASSERT_TRUE(NormalizeForward(f.p, TestStream()).ok());
    NormalizeBackwardParams p = Backward(dz, f.xhat, f.r, dx, norm);
    p.wide = wide;
    p.gamma = f.gamma.data();
    p.gamma_dtype = dtype;
    p.offset = 1.0f;
    ASSERT_TRUE(NormalizeBackward(p, TestStream()).ok());
    const Reference dxhat =
        Map(dz, [&](int64_t i, int64_t c) { return dz.At(i, c) * (1.0 + f.gamma.At(0, c)); });
    ExpectClose(dx, InputGradient(dxhat, Dense(f.xhat), f.r, C, norm));
    p.xhat = nullptr;
    p.x = f.h.data();
    p.x_stride = f.h.stride();
    ASSERT_TRUE(NormalizeBackward(p, TestStream()).ok());
    const Reference exact = Normalized(f.h, StatisticsOf(f.h, norm, kEps));
    ExpectClose(dx, InputGradient(dxhat, exact, f.r, C, norm));
  });
}

TEST(NormalizeFusedTest, SameBitsForAllThreadCountsAndInstructionSets) {
  for (DType dtype : kTypes) {
    const Norm norm = dtype == DType::kF32 ? Norm::kRms : Norm::kLayer;
    ExpectSameBitsEveryWay([&] {
      Fused f(67, 1031, dtype, true, norm);
      f.p.round_xhat = dtype == DType::kBF16;
      EXPECT_TRUE(NormalizeForward(f.p, TestStream()).ok());
      Matrix dx(67, 1031);
      NormalizeBackwardParams p = Backward(f.z, f.xhat, f.r, dx, norm);
      p.wide = true;
      p.xhat = nullptr;
      p.x = f.h.data();
      p.x_stride = f.h.stride();
      EXPECT_TRUE(NormalizeBackward(p, TestStream()).ok());
      Bytes bytes = f.z.bytes();
      for (const Matrix* m : {&f.h, &f.r, &dx}) {
        bytes.insert(bytes.end(), m->bytes().begin(), m->bytes().end());
      }
      return bytes;
    });
  }
}

}  // namespace
}  // namespace snug::kernels
