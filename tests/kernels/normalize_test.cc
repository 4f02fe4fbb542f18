// RMS norm and layer norm: normalise forward and backward, against references in double and the
// oracles NORM-1 to NORM-6. What it does in the same pass is in normalize_fused_test.
#include "kernels/normalize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/norm_testing.h"

namespace snug::kernels {
namespace {

TEST(NormalizeTest, ForwardMatchesReference) {
  ForShapes([](int64_t N, int64_t C, DType dtype, Norm norm) {
    Matrix x(N, C, dtype), xhat(N, C, dtype), r(1, N);
    x.Fill(1, 3.0);
    ASSERT_TRUE(NormalizeForward(Forward(x, xhat, r, norm), TestStream()).ok());
    const Statistics rows = StatisticsOf(x, norm, kEps);
    ExpectClose(r, rows.r);
    // With one column layer norm leaves nothing of x (NORM-6): 0 exactly.
    ExpectClose(xhat, Normalized(x, rows));
  });
}

TEST(NormalizeTest, BackwardMatchesReference) {
  ForShapes([](int64_t N, int64_t C, DType dtype, Norm norm) {
    Matrix x(N, C, dtype), xhat(N, C, dtype), r(1, N), dxhat(N, C, dtype), dx(N, C, dtype);
    x.Fill(1, 2.0);
    dxhat.Fill(2);
    ASSERT_TRUE(NormalizeForward(Forward(x, xhat, r, norm), TestStream()).ok());
    ASSERT_TRUE(NormalizeBackward(Backward(dxhat, xhat, r, dx, norm), TestStream()).ok());
    // With one column dx is what is left of two equal terms; its scale is theirs.
    if (C > 1) ExpectClose(dx, InputGradient(dxhat, xhat, r, norm));
    if (C == 1 && norm == Norm::kLayer) {
      for (int64_t i = 0; i < N; ++i) EXPECT_EQ(dx.At(i, 0), 0.0);
    }
  });
}

// The gradient of sum(dxhat * normalise(x)), without the formula of the header.
TEST(NormalizeTest, BackwardMatchesFiniteDifferences) {
  for (Norm norm : kNorms) {
    Matrix x(2, 33), xhat(2, 33), r(1, 2), dxhat(2, 33), dx(2, 33);
    x.Fill(3);
    dxhat.Fill(4);
    ASSERT_TRUE(NormalizeForward(Forward(x, xhat, r, norm), TestStream()).ok());
    ASSERT_TRUE(NormalizeBackward(Backward(dxhat, xhat, r, dx, norm), TestStream()).ok());
    const Reference weights = Dense(dxhat);
    EXPECT_LE(RelativeError(dx, FiniteDifferences(Dense(x),
                                                  [&](const std::vector<double>& v) {
                                                    return WeightedNorm(v, 33, norm, weights);
                                                  })),
              1e-6);
  }
}

// Written over its operand, or added into what is there.
TEST(NormalizeTest, WorksInPlaceAndAccumulates) {
  for (DType dtype : kTypes) {
    Matrix x(5, 127, dtype), xhat(5, 127, dtype), r(1, 5), dxhat(5, 127, dtype), dx(5, 127, dtype);
    const Norm norm = dtype == DType::kBF16 ? Norm::kLayer : Norm::kRms;
    x.Fill(5);
    dxhat.Fill(6);
    ASSERT_TRUE(NormalizeForward(Forward(x, xhat, r, norm), TestStream()).ok());
    ASSERT_TRUE(NormalizeBackward(Backward(dxhat, xhat, r, dx, norm), TestStream()).ok());
    Matrix over = x, sum(5, 127, dtype);
    ASSERT_TRUE(NormalizeForward(Forward(over, over, r, norm), TestStream()).ok());
    EXPECT_EQ(over.bytes(), xhat.bytes());
    sum.Fill(7);
    const Matrix before = sum;
    NormalizeBackwardParams p = Backward(dxhat, xhat, r, sum, norm);
    p.accumulate = true;
    ASSERT_TRUE(NormalizeBackward(p, TestStream()).ok());
    Reference expected = InputGradient(dxhat, xhat, r, norm);
    for (int64_t k = 0; k < 5 * 127; ++k) expected[k] += before.At(k / 127, k % 127);
    ExpectClose(sum, expected);
    ASSERT_TRUE(NormalizeBackward(Backward(dxhat, xhat, r, dxhat, norm), TestStream()).ok());
    EXPECT_EQ(dxhat.bytes(), dx.bytes());
  }
}

void ExpectRow(const Matrix& actual, const std::vector<double>& expected) {
  for (int64_t c = 0; c < actual.C(); ++c) EXPECT_NEAR(actual.At(0, c), expected[c], 2e-6);
}

// NORM-1: the page's numbers, eps = 0.
TEST(NormalizeTest, Norm1GivesTheWorkedExample) {
  for (Norm norm : kNorms) {
    Matrix x(1, 4), y(1, 4), r(1, 1), dy(1, 4), dx(1, 4);
    for (int64_t c = 0; c < 4; ++c) {
      x.Set(0, c, static_cast<double>(c + 1));
      dy.Set(0, c, c == 0 ? 1.0 : 0.0);
    }
    NormalizeForwardParams p = Forward(x, y, r, norm);
    p.eps = 0.0f;
    ASSERT_TRUE(NormalizeForward(p, TestStream()).ok());
    ASSERT_TRUE(NormalizeBackward(Backward(dy, y, r, dx, norm), TestStream()).ok());
    const bool layer = norm == Norm::kLayer;
    ExpectRow(r, layer ? std::vector{0.894427} : std::vector{0.365148});
    ExpectRow(y, layer ? std::vector{-1.341641, -0.447214, 0.447214, 1.341641}
                       : std::vector{0.365148, 0.730297, 1.095445, 1.460593});
    ExpectRow(dx, layer ? std::vector{0.268328, -0.357771, -0.0894427, 0.178885}
                        : std::vector{0.352977, -0.0243432, -0.0365148, -0.0486864});
  }
}

// NORM-2: what holds of each row whatever it is.
TEST(NormalizeTest, Norm2KeepsTheIdentitiesOfARow) {
  for (Norm norm : kNorms) {
    Matrix x(7, 768), y(7, 768), r(1, 7), dy(7, 768), dx(7, 768);
    x.Fill(8, 0.02);  // So that eps counts.
    dy.Fill(9);
    ASSERT_TRUE(NormalizeForward(Forward(x, y, r, norm), TestStream()).ok());
    ASSERT_TRUE(NormalizeBackward(Backward(dy, y, r, dx, norm), TestStream()).ok());
    for (int64_t i = 0; i < 7; ++i) {
      double sum_y = 0.0, squares = 0.0, dy_y = 0.0, dx_y = 0.0, sum_dx = 0.0, scale = 0.0;
      for (int64_t c = 0; c < 768; ++c) {
        sum_y += y.At(i, c);
        squares += y.At(i, c) * y.At(i, c) / 768.0;
        dy_y += dy.At(i, c) * y.At(i, c);
        dx_y += dx.At(i, c) * y.At(i, c);
        sum_dx += dx.At(i, c);
        scale += std::abs(dx.At(i, c) * y.At(i, c)) + std::abs(dx.At(i, c));
      }
      const double eps = static_cast<double>(kEps), rstd = r.At(0, i);
      EXPECT_NEAR(dx_y, eps * rstd * rstd * rstd * dy_y, 1e-5 * scale);
      EXPECT_NEAR(squares, 1.0 - eps * rstd * rstd, 1e-5);
      if (norm == Norm::kRms) continue;
      EXPECT_NEAR(sum_dx, 0.0, 1e-5 * scale);
      EXPECT_NEAR(sum_y, 0.0, 1e-5 * 768.0);
    }
  }
}

// NORM-3: layer norm of a shifted row, both norms of a scaled one.
TEST(NormalizeTest, Norm3IsInvariantToShiftAndScale) {
  for (Norm norm : kNorms) {
    Matrix x(3, 768), shifted(3, 768), scaled(3, 768), y(3, 768), r(1, 3), dy(3, 768), dx(3, 768),
        scaled_dx(3, 768), other(3, 768);
    x.Fill(10);
    dy.Fill(11);
    for (int64_t k = 0; k < 3 * 768; ++k) {
      shifted.Set(k / 768, k % 768, x.At(k / 768, k % 768) - 100.0);
      scaled.Set(k / 768, k % 768, x.At(k / 768, k % 768) * 16.0);
    }
    ASSERT_TRUE(NormalizeForward(Forward(x, y, r, norm), TestStream()).ok());
    ASSERT_TRUE(NormalizeBackward(Backward(dy, y, r, dx, norm), TestStream()).ok());
    if (norm == Norm::kLayer) {
      ASSERT_TRUE(NormalizeForward(Forward(shifted, other, r, norm), TestStream()).ok());
      EXPECT_LE(RelativeError(other, Dense(y)), 1e-5);
    }
    ASSERT_TRUE(NormalizeForward(Forward(scaled, other, r, norm), TestStream()).ok());
    EXPECT_LE(RelativeError(other, Dense(y)), 1e-5);
    ASSERT_TRUE(NormalizeBackward(Backward(dy, other, r, scaled_dx, norm), TestStream()).ok());
    EXPECT_LE(
        RelativeError(scaled_dx, Map(dx, [&](int64_t i, int64_t c) { return dx.At(i, c) / 16.0; })),
        1e-5);
  }
}

// NORM-4 and NORM-5: from xhat as rounded, against the gradient at the exact xhat. Where dy is
// nearly xhat itself the rounding shows; kept from the input it does not.
TEST(NormalizeTest, Norm4AndNorm5BoundWhatRoundingXhatCosts) {
  const double plain[] = {1e-6, 4e-3, 5e-4}, cancelling[] = {1e-5, 5e-2, 6e-3};
  for (Norm norm : kNorms) {
    for (DType dtype : kTypes) {
      Matrix x(6, 768, dtype), xhat(6, 768, dtype), r(1, 6), dy(6, 768, dtype), dx(6, 768, dtype);
      x.Fill(12);
      ASSERT_TRUE(NormalizeForward(Forward(x, xhat, r, norm), TestStream()).ok());
      const Reference exact = Normalized(x, StatisticsOf(x, norm, kEps));
      for (bool cancels : {false, true}) {
        dy.Fill(13, cancels ? 0.1 : 1.0);
        for (int64_t k = 0; cancels && k < 6 * 768; ++k) {
          dy.Set(k / 768, k % 768, dy.At(k / 768, k % 768) + xhat.At(k / 768, k % 768));
        }
        const Reference expected = ExactInputGradient(dy, exact, r, norm);
        const int type = static_cast<int>(dtype);
        ASSERT_TRUE(NormalizeBackward(Backward(dy, xhat, r, dx, norm), TestStream()).ok());
        EXPECT_LE(RelativeError(dx, expected), cancels ? cancelling[type] : plain[type]);
        NormalizeBackwardParams p = Backward(dy, xhat, r, dx, norm);
        p.xhat = nullptr;
        p.x = x.data();
        p.x_stride = x.stride();
        ASSERT_TRUE(NormalizeBackward(p, TestStream()).ok());
        EXPECT_LE(RelativeError(dx, expected), cancels ? UnitOf(dtype) + 1e-5 : plain[type]);
      }
    }
  }
}

// NORM-6: rows from one element to more than registers hold; many rows; rows that are constant, and
// rows whose mean is 10,000 times their deviation.
TEST(NormalizeTest, Norm6MatchesForAllShapes) {
  const auto check = [](int64_t N, int64_t C, Norm norm) {
    SCOPED_TRACE(testing::Message() << N << " x " << C);
    Matrix x(N, C, DType::kBF16), xhat(N, C, DType::kBF16), r(1, N), dx(N, C, DType::kBF16);
    x.Fill(14);
    ASSERT_TRUE(NormalizeForward(Forward(x, xhat, r, norm), TestStream()).ok());
    ExpectClose(xhat, Normalized(x, StatisticsOf(x, norm, kEps)));
    ASSERT_TRUE(NormalizeBackward(Backward(x, xhat, r, dx, norm), TestStream()).ok());
    // dx cancels here (NORM-5), so it is held against its terms.
    const Reference expected = InputGradient(x, xhat, r, norm);
    for (int64_t k = 0; k < N * C; k += 97) {
      const int64_t i = k / C, c = k % C;
      EXPECT_NEAR(
          dx.At(i, c), expected[k],
          0x1p-8 * std::abs(expected[k]) + 1e-5 * r.At(0, i) * (1.0 + std::abs(x.At(i, c))));
    }
  };
  for (Norm norm : kNorms) {
    for (int64_t C : {1, 31, 32, 767, 768, 4096, 4097, 5120, 8192, 16384}) check(3, C, norm);
    check(OnCpu() ? 12608 : 260, 32, norm);
    check(OnCpu() ? 65537 : 67, 1, norm);
  }
}

TEST(NormalizeTest, Norm6KeepsConstantRowsAndLargeMeans) {
  Matrix x(2, 1000), y(2, 1000), r(1, 2), dy(2, 1000), dx(2, 1000);
  x.Fill(15);
  dy.Fill(16);
  for (int64_t c = 0; c < 1000; ++c) {
    x.Set(0, c, 0.3);
    x.Set(1, c, x.At(1, c) + 1e4);
  }
  ASSERT_TRUE(NormalizeForward(Forward(x, y, r, Norm::kLayer), TestStream()).ok());
  ASSERT_TRUE(NormalizeBackward(Backward(dy, y, r, dx, Norm::kLayer), TestStream()).ok());
  const Statistics rows = StatisticsOf(x, Norm::kLayer, kEps);
  const Reference expected = Normalized(x, rows);
  EXPECT_NEAR(r.At(0, 0), 1.0 / std::sqrt(static_cast<double>(kEps)), 1e-3);
  double mean = 0.0;
  for (int64_t c = 0; c < 1000; ++c) mean += dy.At(0, c) / 1000.0;
  for (int64_t c = 0; c < 1000; ++c) {
    EXPECT_NEAR(y.At(0, c), 0.0, 1e-6);
    EXPECT_NEAR(dx.At(0, c), r.At(0, 0) * (dy.At(0, c) - mean), 1e-3);
    // Far below the 1e-3 that a mean in one fp32 would leave.
    EXPECT_NEAR(y.At(1, c), expected[1000 + c], 1e-6 * (1.0 + std::abs(expected[1000 + c])));
  }
}

TEST(NormalizeTest, SameBitsForAllThreadCountsAndInstructionSets) {
  for (DType dtype : kTypes) {
    const Norm norm = dtype == DType::kF16 ? Norm::kRms : Norm::kLayer;
    Matrix x(67, 1031, dtype);
    x.Fill(17);
    ExpectSameBitsEveryWay([&] {
      Matrix xhat(67, 1031, dtype), r(1, 67), dx(67, 1031, dtype);
      EXPECT_TRUE(NormalizeForward(Forward(x, xhat, r, norm), TestStream()).ok());
      EXPECT_TRUE(NormalizeBackward(Backward(x, xhat, r, dx, norm), TestStream()).ok());
      Bytes bytes = xhat.bytes();
      for (const Matrix* m : {&r, &dx}) {
        bytes.insert(bytes.end(), m->bytes().begin(), m->bytes().end());
      }
      return bytes;
    });
  }
}

// Row by row gives what one call gives.
TEST(NormalizeTest, SameBitsHoweverRowsAreDivided) {
  for (Norm norm : kNorms) {
    Matrix x(7, 4097), all(7, 4097), apart(7, 4097), r(1, 7), r_apart(1, 7);
    x.Fill(18);
    ASSERT_TRUE(NormalizeForward(Forward(x, all, r, norm), TestStream()).ok());
    for (int64_t i = 0; i < 7; ++i) {
      NormalizeForwardParams p = Forward(x, apart, r_apart, norm);
      p.x = x.row(i);
      p.xhat = apart.row(i);
      p.r = r_apart.floats() + i;
      p.N = 1;
      ASSERT_TRUE(NormalizeForward(p, TestStream()).ok());
    }
    EXPECT_EQ(all.bytes(), apart.bytes());
    EXPECT_EQ(r.bytes(), r_apart.bytes());
  }
}

TEST(NormalizeTest, NanStaysInItsRow) {
  for (Norm norm : kNorms) {
    Matrix x(3, 33), xhat(3, 33), r(1, 3);
    x.Fill(19);
    x.Set(1, 32, std::numeric_limits<double>::quiet_NaN());
    ASSERT_TRUE(NormalizeForward(Forward(x, xhat, r, norm), TestStream()).ok());
    EXPECT_TRUE(std::isnan(xhat.At(1, 0)) && std::isnan(r.At(0, 1)));
    EXPECT_TRUE(std::isfinite(xhat.At(0, 32)) && std::isfinite(xhat.At(2, 0)));
  }
}

// Each bad argument is named, and nothing is written.
TEST(NormalizeTest, RefusesBadArguments) {
  Matrix x(3, 33), xhat(3, 33), r(1, 3), other(3, 33);
  x.Fill(20);
  const Bytes before = xhat.bytes();
  const auto refused = [&](auto change) {
    NormalizeForwardParams p = Forward(x, xhat, r, Norm::kRms);
    change(p);
    return Name(NormalizeForward(p, TestStream()));
  };
  using P = NormalizeForwardParams;
  EXPECT_EQ(refused([](P& p) { p.x = nullptr; }), "null pointer: x");
  EXPECT_EQ(refused([](P& p) { p.xhat = nullptr; }), "null pointer: xhat");
  EXPECT_EQ(refused([](P& p) { p.r = nullptr; }), "null pointer: r");
  EXPECT_EQ(refused([](P& p) { p.N = -1; }), "bad shape: N");
  EXPECT_EQ(refused([](P& p) { p.C = 0; }), "bad shape: C");
  EXPECT_EQ(refused([](P& p) { p.xhat_stride = 32; }), "bad stride: xhat_stride");
  EXPECT_EQ(refused([](P& p) { p.dtype = static_cast<DType>(7); }), "bad dtype: dtype");
  EXPECT_EQ(refused([](P& p) { p.eps = -1.0f; }), "bad value: eps");
  EXPECT_EQ(refused([](P& p) { p.eps = std::nanf(""); }), "bad value: eps");
  EXPECT_EQ(refused([](P& p) { p.norm = static_cast<Norm>(2); }), "bad value: norm");
  EXPECT_EQ(refused([&](P& p) {
              p.residual = other.data();
              p.residual_stride = 33;
            }),
            "null pointer: h");
  EXPECT_EQ(refused([&](P& p) {
              p.z = other.data();
              p.z_stride = 33;
            }),
            "null pointer: gamma");
  EXPECT_EQ(refused([&](P& p) {
              p.gamma = other.data();
              p.z = p.xhat;
              p.z_stride = p.xhat_stride;
            }),
            "bad value: z");
  NormalizeBackwardParams backward = Backward(x, x, r, xhat, Norm::kRms);
  backward.xhat = nullptr;
  EXPECT_EQ(Name(NormalizeBackward(backward, TestStream())), "null pointer: xhat");
  backward.x = x.data();
  backward.x_stride = 5;
  EXPECT_EQ(Name(NormalizeBackward(backward, TestStream())), "bad stride: x_stride");
  if (OnCpu()) {
    EXPECT_EQ(Name(NormalizeForward(Forward(x, xhat, r, Norm::kRms), reinterpret_cast<Stream>(&x))),
              "no device for this stream: stream");
  }
  EXPECT_EQ(xhat.bytes(), before);
}

}  // namespace
}  // namespace snug::kernels
