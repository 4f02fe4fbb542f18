// A norm's affine step taken together with its linear: NORM-7 and the gradients of methods B.4.
#include "kernels/norm_merge.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

// y = z W^T + b with z = xhat * (offset + gamma) + beta; M rows of C, N outputs.
struct Linear {
  Matrix w, b, gamma, beta;
  float offset = 0.0f;

  Linear(int64_t N, int64_t C, DType dtype)
      : w(N, C, dtype), b(1, N, dtype), gamma(1, C), beta(1, C) {
    w.Fill(1);
    b.Fill(2);
    beta.Fill(3);
    gamma.Fill(4);
    for (int64_t c = 0; c < C; ++c) {  // Bounded away from 0, of both signs.
      const double g = gamma.At(0, c);
      gamma.Set(0, c, g + (g < 0.0 ? -0.5 : 0.5));
    }
  }
  double Factor(int64_t c) const { return static_cast<double>(offset) + gamma.At(0, c); }
};

MergeNormParams Merge(Linear& l, Matrix& merged_w, Matrix& merged_b) {
  return {.w = l.w.data(),
          .b = l.b.data(),
          .gamma = l.gamma.data(),
          .beta = l.beta.data(),
          .merged_w = merged_w.data(),
          .merged_b = merged_b.data(),
          .N = l.w.N(),
          .C = l.w.C(),
          .w_stride = l.w.stride(),
          .merged_w_stride = merged_w.stride(),
          .dtype = l.w.dtype()};
}

// w x + b for one row, in double.
Reference Apply(const Matrix& w, const Matrix& b, const Reference& x) {
  return Map(b, [&](int64_t, int64_t n) {
    double sum = b.At(0, n);
    for (int64_t c = 0; c < w.C(); ++c) sum += w.At(n, c) * x[c];
    return sum;
  });
}

// NORM-7: the merged linear of xhat is the linear of the affine step of xhat. The control takes
// what the paper's script does for one head, W gamma in the place of W in the bias: it is far off.
TEST(NormMergeTest, Norm7MergedLinearGivesWhatAffineAndLinearGive) {
  for (DType dtype : kTypes) {
    for (int64_t C : kWidths) {
      Linear l(9, C, dtype);
      Matrix w(9, C, dtype), b(1, 9, dtype), xhat(1, C);
      xhat.Fill(5);
      ASSERT_TRUE(MergeNorm(Merge(l, w, b), TestStream()).ok());
      EXPECT_TRUE(w.GapsUntouched() && b.GapsUntouched());
      const Reference z = Map(
          xhat, [&](int64_t, int64_t c) { return xhat.At(0, c) * l.Factor(c) + l.beta.At(0, c); });
      const Reference expected = Apply(l.w, l.b, z), actual = Apply(w, b, Dense(xhat));
      double error = 0.0, norm = 0.0, control = 0.0;
      for (int64_t n = 0; n < 9; ++n) {
        error += std::pow(actual[n] - expected[n], 2);
        norm += expected[n] * expected[n];
        double shift = 0.0;
        for (int64_t c = 0; c < C; ++c) shift += (w.At(n, c) - l.w.At(n, c)) * l.beta.At(0, c);
        control += shift * shift;
      }
      EXPECT_LE(std::sqrt(error / norm), dtype == DType::kF32 ? 1e-5 : 2.0 * UnitOf(dtype) + 1e-5);
      EXPECT_GT(std::sqrt(control / norm), 0.02);
    }
  }
}

// NORM-7: and back, in place; with weights stored less one.
TEST(NormMergeTest, Norm7UnmergeUndoesMerge) {
  for (float offset : {0.0f, 1.0f}) {
    Linear l(9, 127, DType::kF32);
    const Matrix w = l.w, b = l.b;
    l.offset = offset;
    for (int64_t c = 0; c < 127; ++c) l.gamma.Set(0, c, std::abs(l.gamma.At(0, c)));
    MergeNormParams p = Merge(l, l.w, l.b);
    p.offset = offset;
    ASSERT_TRUE(MergeNorm(p, TestStream()).ok());
    EXPECT_GT(RelativeError(l.w, Dense(w)), 0.1);
    ASSERT_TRUE(UnmergeNorm(p, TestStream()).ok());
    EXPECT_LE(RelativeError(l.w, Dense(w)), 1e-6);
    EXPECT_LE(RelativeError(l.b, Dense(b)), 1e-6);
  }
}

// RMS norm has no beta and its linears mostly no bias; a linear without a bias gets one from beta.
TEST(NormMergeTest, BiasIsThereWhereItIsNeeded) {
  Linear l(5, 33, DType::kF32);
  Matrix w(5, 33), b(1, 5);
  MergeNormParams p = Merge(l, w, b);
  p.b = nullptr;
  ASSERT_TRUE(MergeNorm(p, TestStream()).ok());
  const Reference from_beta = Map(b, [&](int64_t, int64_t n) {
    double sum = 0.0;
    for (int64_t c = 0; c < 33; ++c) sum += l.w.At(n, c) * l.beta.At(0, c);
    return sum;
  });
  ExpectClose(b, from_beta);
  p.beta = nullptr;
  p.merged_b = nullptr;
  ASSERT_TRUE(MergeNorm(p, TestStream()).ok());
  ExpectClose(w, Map(w, [&](int64_t n, int64_t c) { return l.w.At(n, c) * l.gamma.At(0, c); }));
  p.beta = l.beta.data();
  EXPECT_EQ(Name(MergeNorm(p, TestStream())), "null pointer: merged_b");
}

// Into dw, and into the two rows of `sums`: dgamma and dbeta.
FoldNormParams Fold(Linear& l, Matrix& g, Matrix& s, Matrix& dw, Matrix& sums) {
  static Bytes workspace(1 << 22);
  return {.g = g.floats(),
          .s = s.floats(),
          .gamma = l.gamma.data(),
          .beta = l.beta.data(),
          .w = l.w.data(),
          .dw = dw.floats(),
          .dgamma = sums.floats(),
          .dbeta = static_cast<float*>(sums.row(1)),
          .N = l.w.N(),
          .C = l.w.C(),
          .g_stride = g.stride(),
          .w_stride = l.w.stride(),
          .dw_stride = dw.stride(),
          .w_dtype = l.w.dtype(),
          .offset = l.offset,
          .workspace = workspace.data()};
}

// dW, dgamma and dbeta of sum(dy * y), each from its definition with z at hand, against what comes
// of g = dy^T xhat and s alone.
TEST(NormMergeTest, Norm7FoldsTheGradientsOfTheMergedWeight) {
  constexpr int64_t kRows = 6;
  for (DType dtype : kTypes) {
    for (int64_t C : kWidths) {
      for (int64_t N : {1, 70}) {
        if (N > 1 && C > 2048 && !OnCpu()) continue;
        SCOPED_TRACE(testing::Message() << N << " x " << C);
        Linear l(N, C, dtype);
        l.offset = 1.0f;
        Matrix dy(kRows, N), xhat(kRows, C), g(N, C), s(1, N), dw(N, C), sums(2, C);
        dy.Fill(6);
        xhat.Fill(7);
        const auto dot = [](auto term) {
          double sum = 0.0;
          for (int64_t i = 0; i < kRows; ++i) sum += term(i);
          return sum;
        };
        for (int64_t n = 0; n < N; ++n) {
          s.Set(0, n, dot([&](int64_t i) { return dy.At(i, n); }));
          for (int64_t c = 0; c < C; ++c) {
            g.Set(n, c, dot([&](int64_t i) { return dy.At(i, n) * xhat.At(i, c); }));
          }
        }
        ASSERT_TRUE(FoldNorm(Fold(l, g, s, dw, sums), TestStream()).ok());
        ExpectClose(dw, Map(dw, [&](int64_t n, int64_t c) {
                      return dot([&](int64_t i) {
                        return dy.At(i, n) * (xhat.At(i, c) * l.Factor(c) + l.beta.At(0, c));
                      });
                    }));
        const auto affine_sum = [&](bool of_gamma) {
          return Map(l.gamma, [&](int64_t, int64_t c) {
            return dot([&](int64_t i) {
              double dz = 0.0;
              for (int64_t n = 0; n < N; ++n) dz += dy.At(i, n) * l.w.At(n, c);
              return of_gamma ? dz * xhat.At(i, c) : dz;
            });
          });
        };
        Reference expected = affine_sum(true);
        for (double dbeta : affine_sum(false)) expected.push_back(dbeta);
        ExpectClose(sums, expected);
      }
    }
  }
}

// dW over g, or each added into what is there; without what is not asked for (an adapter's A).
TEST(NormMergeTest, FoldsInPlaceAndAccumulates) {
  Linear l(40, 127, DType::kBF16);
  Matrix g(40, 127), s(1, 40), dw(40, 127), sums(2, 127);
  g.Fill(8);
  s.Fill(9);
  ASSERT_TRUE(FoldNorm(Fold(l, g, s, dw, sums), TestStream()).ok());
  Matrix over = g;
  FoldNormParams p = Fold(l, over, s, over, sums);
  p.dgamma = p.dbeta = nullptr;
  p.w = nullptr;
  ASSERT_TRUE(FoldNorm(p, TestStream()).ok());
  EXPECT_EQ(over.bytes(), dw.bytes());
  Matrix sum = dw, twice = sums;
  p = Fold(l, g, s, sum, twice);
  p.accumulate = true;
  ASSERT_TRUE(FoldNorm(p, TestStream()).ok());
  const auto doubled = [](const Matrix& m) {
    return Map(m, [&](int64_t i, int64_t c) { return 2.0 * m.At(i, c); });
  };
  ExpectClose(sum, doubled(dw));
  ExpectClose(twice, doubled(sums));
}

TEST(NormMergeTest, SameBitsForAllThreadCountsAndInstructionSets) {
  Linear l(67, 1031, DType::kF16);
  Matrix g(67, 1031), s(1, 67);
  g.Fill(10);
  s.Fill(11);
  ExpectSameBitsEveryWay([&] {
    Matrix dw(67, 1031), sums(2, 1031), w(67, 1031, DType::kF16), b(1, 67, DType::kF16);
    EXPECT_TRUE(FoldNorm(Fold(l, g, s, dw, sums), TestStream()).ok());
    EXPECT_TRUE(MergeNorm(Merge(l, w, b), TestStream()).ok());
    Bytes bytes = dw.bytes();
    for (const Matrix* m : {&sums, &w, &b}) {
      bytes.insert(bytes.end(), m->bytes().begin(), m->bytes().end());
    }
    return bytes;
  });
}

TEST(NormMergeTest, RefusesBadArguments) {
  Linear l(3, 33, DType::kF32);
  Matrix g(3, 33), s(1, 3), dw(3, 33), sums(2, 33);
  const Bytes before = dw.bytes();
  const auto refused = [&](auto change) {
    FoldNormParams p = Fold(l, g, s, dw, sums);
    change(p);
    return Name(FoldNorm(p, TestStream()));
  };
  using P = FoldNormParams;
  EXPECT_EQ(refused([](P& p) { p.g = nullptr; }), "null pointer: g");
  EXPECT_EQ(refused([](P& p) { p.s = nullptr; }), "null pointer: s");
  EXPECT_EQ(refused([](P& p) { p.w = nullptr; }), "null pointer: w");
  EXPECT_EQ(refused([](P& p) { p.gamma = nullptr; }), "null pointer: gamma");
  EXPECT_EQ(refused([](P& p) { p.dw_stride = 3; }), "bad stride: dw_stride");
  EXPECT_EQ(refused([](P& p) { p.w_dtype = static_cast<DType>(3); }), "bad dtype: w_dtype");
  EXPECT_EQ(refused([](P& p) {
              p.dw = const_cast<float*>(p.g);
              p.accumulate = true;
            }),
            "bad value: dw");
  EXPECT_EQ(dw.bytes(), before);
  Matrix w(3, 33), b(1, 3);
  MergeNormParams p = Merge(l, w, b);
  p.gamma = nullptr;
  EXPECT_EQ(Name(UnmergeNorm(p, TestStream())), "null pointer: gamma");
}

}  // namespace
}  // namespace snug::kernels
