// Linear layers over frozen weights, forward and backward, against products in double with the
// weight as it is dequantised.
#include "kernels/frozen_linear.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>

#include "tests/kernels/frozen_testing.h"

namespace snug::kernels {
namespace {

// W' of either kind: codes, and the same as a matrix.
struct Weight {
  Nf4Memory nf4;
  Int8Memory int8;
  Matrix dense;
  FrozenKind kind;

  Weight(int64_t N, int64_t K, FrozenKind k, DType dtype, bool nested = true)
      : nf4(N * K, nested), int8(N, K), dense(N, K, dtype), kind(k) {
    Matrix w(N, K, dtype);
    w.Fill(77, 0.05);
    EXPECT_TRUE((kind == FrozenKind::kNf4 ? nf4.Quantize(w) : int8.Quantize(w)).ok());
    EXPECT_TRUE((kind == FrozenKind::kNf4 ? nf4.Dequantize(dense) : int8.Dequantize(dense)).ok());
  }
  FrozenWeight frozen() { return {.kind = kind, .nf4 = nf4.weight(), .int8 = int8.weight()}; }
};

Bytes& Workspace(int64_t threads) {
  static Bytes workspace;
  workspace.assign(FrozenLinearWorkspace(threads), 0xA5);
  return workspace;
}

FrozenLinearParams ParamsOf(const Matrix& in, Weight& W, Matrix& out, int64_t threads = 2) {
  Bytes& workspace = Workspace(threads);
  return {.in = in.data(),
          .W = W.frozen(),
          .out = out.data(),
          .M = in.N(),
          .N = W.dense.N(),
          .K = W.dense.C(),
          .in_stride = in.stride(),
          .out_stride = out.stride(),
          .dtype = in.dtype(),
          .workspace = workspace.data(),
          .workspace_bytes = static_cast<int64_t>(workspace.size())};
}

void ExpectProducts(int64_t M, int64_t N, int64_t K, FrozenKind kind, DType dtype) {
  SCOPED_TRACE(testing::Message() << M << " x " << N << " x " << K << ", kind "
                                  << static_cast<int>(kind) << ", type "
                                  << static_cast<int>(dtype));
  Weight W(N, K, kind, dtype);
  Matrix x(M, K, dtype), y(M, N, dtype), dy(M, N, dtype), dx(M, K, dtype);
  x.Fill(1);
  dy.Fill(2);
  ASSERT_TRUE(FrozenLinearForward(ParamsOf(x, W, y), TestStream()).ok());
  ASSERT_TRUE(FrozenLinearBackward(ParamsOf(dy, W, dx), TestStream()).ok());
  ExpectClose(y, Map(y, [&](int64_t m, int64_t n) {
                double sum = 0.0;
                for (int64_t k = 0; k < K; ++k) sum += x.At(m, k) * W.dense.At(n, k);
                return sum;
              }));
  ExpectClose(dx, Map(dx, [&](int64_t m, int64_t k) {
                double sum = 0.0;
                for (int64_t n = 0; n < N; ++n) sum += dy.At(m, n) * W.dense.At(n, k);
                return sum;
              }));
}

// Sizes around those of the tiles, odd ones, single rows; larger ones on the CPU alone.
TEST(FrozenLinearTest, MatchesReference) {
  struct Shape {
    int64_t M, N, K;
  };
  for (FrozenKind kind : {FrozenKind::kNf4, FrozenKind::kInt8}) {
    for (DType dtype : kTypes) {
      for (const Shape& s : {Shape{1, 1, 1}, Shape{3, 33, 31}, Shape{33, 31, 127}, Shape{5, 64, 64},
                             Shape{70, 65, 130}}) {
        ExpectProducts(s.M, s.N, s.K, kind, dtype);
      }
      if (OnCpu()) ExpectProducts(131, 300, 257, kind, dtype);
      // Emulated, these take seconds; LongSumsKeepTheirDigits has them in fp32.
      if (!OnCpu() && dtype != DType::kBF16) continue;
      ExpectProducts(3, 31, 4097, kind, dtype);
      ExpectProducts(3, 4097, 31, kind, dtype);
      ExpectProducts(4097, 3, 5, kind, dtype);
    }
  }
}

// Each has tiles of its own, one of pairs of bf16: odd sizes, and more than a tile each way.
TEST(FrozenLinearTest, MatchesReferenceOnEveryInstructionSet) {
  if (!OnCpu()) GTEST_SKIP() << "the CPU's";
  OnEachInstructionSet([] {
    for (DType dtype : kTypes) {
      ExpectProducts(9, 67, 131, FrozenKind::kNf4, dtype);
      ExpectProducts(5, 131, 35, FrozenKind::kInt8, dtype);
      ExpectProducts(3, 130, 160, FrozenKind::kNf4, dtype);  // Rows of whole vectors.
      ExpectProducts(515, 20, 40, FrozenKind::kNf4, dtype);  // More rows than a tile's.
    }
  });
}

// The larger a partial sum, the more of the next term is rounded away: of positive terms a single
// chain of 4097 in fp32 loses more than the header allows.
void ExpectDigitsOfLongSums(bool forward) {
  constexpr int64_t kTerms = 4097;
  Matrix w(forward ? 5 : kTerms, forward ? kTerms : 5), in(3, kTerms), out(3, 5);
  Int8Memory int8(w.N(), w.C());
  for (Matrix* m : {&w, &in}) {
    m->Fill(31);
    for (int64_t i = 0; i < m->N(); ++i) {
      for (int64_t c = 0; c < m->C(); ++c) m->Set(i, c, std::abs(m->At(i, c)));
    }
  }
  ASSERT_TRUE(int8.Quantize(w).ok() && int8.Dequantize(w).ok());
  Bytes& workspace = Workspace(2);
  const FrozenLinearParams p = {.in = in.data(),
                                .W = {.kind = FrozenKind::kInt8, .int8 = int8.weight()},
                                .out = out.data(),
                                .M = 3,
                                .N = w.N(),
                                .K = w.C(),
                                .in_stride = in.stride(),
                                .out_stride = out.stride(),
                                .workspace = workspace.data(),
                                .workspace_bytes = static_cast<int64_t>(workspace.size())};
  ASSERT_TRUE((forward ? FrozenLinearForward : FrozenLinearBackward)(p, TestStream()).ok());
  double worst = 0.0;
  for (int64_t m = 0; m < 3; ++m) {
    for (int64_t c = 0; c < 5; ++c) {
      double sum = 0.0;
      for (int64_t k = 0; k < kTerms; ++k) {
        sum += in.At(m, k) * (forward ? w.At(c, k) : w.At(k, c));
      }
      worst = std::max(worst, std::abs(out.At(m, c) - sum) / sum);
    }
  }
  EXPECT_LE(worst, 5e-7);
}

TEST(FrozenLinearTest, LongSumsKeepTheirDigits) {
  OnEachInstructionSet([] {
    ExpectDigitsOfLongSums(true);
    ExpectDigitsOfLongSums(false);
  });
}

TEST(FrozenLinearTest, WithoutDoubleQuantisation) {
  Weight W(20, 48, FrozenKind::kNf4, DType::kF32, false);
  Matrix x(3, 48), y(3, 20);
  x.Fill(1);
  ASSERT_TRUE(FrozenLinearForward(ParamsOf(x, W, y), TestStream()).ok());
  ExpectClose(y, Map(y, [&](int64_t m, int64_t n) {
                double sum = 0.0;
                for (int64_t k = 0; k < 48; ++k) sum += x.At(m, k) * W.dense.At(n, k);
                return sum;
              }));
}

// <dy, forward(x)> = <backward(dy), x>, without the weight.
TEST(FrozenLinearTest, BackwardIsTheAdjointOfForward) {
  for (FrozenKind kind : {FrozenKind::kNf4, FrozenKind::kInt8}) {
    Weight W(40, 90, kind, DType::kF32);
    Matrix x(7, 90), y(7, 40), dy(7, 40), dx(7, 90);
    x.Fill(11);
    dy.Fill(12);
    ASSERT_TRUE(FrozenLinearForward(ParamsOf(x, W, y), TestStream()).ok());
    ASSERT_TRUE(FrozenLinearBackward(ParamsOf(dy, W, dx), TestStream()).ok());
    double forward = 0.0, backward = 0.0, size = 0.0;
    for (int64_t m = 0; m < 7; ++m) {
      for (int64_t n = 0; n < 40; ++n) forward += dy.At(m, n) * y.At(m, n);
      for (int64_t n = 0; n < 40; ++n) size += std::abs(dy.At(m, n) * y.At(m, n));
      for (int64_t k = 0; k < 90; ++k) backward += dx.At(m, k) * x.At(m, k);
    }
    EXPECT_NEAR(forward, backward, 1e-6 * size);
  }
}

// Threads and room for them change nothing; nor does another run.
TEST(FrozenLinearTest, SameBitsForAllThreadCounts) {
  Weight W(150, 70, FrozenKind::kNf4, DType::kBF16);
  Matrix x(140, 70, DType::kBF16);
  x.Fill(5);
  const auto bytes = [&](int64_t threads) {
    Matrix y(140, 150, DType::kBF16);
    EXPECT_TRUE(FrozenLinearForward(ParamsOf(x, W, y, threads), TestStream()).ok());
    return y.bytes();
  };
  const Bytes first = bytes(1);
  const int before = omp_get_max_threads();
  for (int threads : {1, 2, 5}) {
    omp_set_num_threads(threads);
    EXPECT_EQ(bytes(threads), first);
    EXPECT_EQ(bytes(3), first);
  }
  omp_set_num_threads(before);
}

TEST(FrozenLinearTest, RefusesBadArguments) {
  Weight W(20, 33, FrozenKind::kNf4, DType::kF32);
  Matrix x(3, 33), y(3, 20);
  x.Fill(1);
  const Bytes before = y.bytes();
  const auto refused = [&](auto change) {
    FrozenLinearParams p = ParamsOf(x, W, y);
    change(p);
    return Name(FrozenLinearForward(p, TestStream()));
  };
  using P = FrozenLinearParams;
  EXPECT_EQ(refused([](P& p) { p.in = nullptr; }), "null pointer: in");
  EXPECT_EQ(refused([](P& p) { p.out = nullptr; }), "null pointer: out");
  EXPECT_EQ(refused([](P& p) { p.W.nf4.codes = nullptr; }), "null pointer: codes");
  EXPECT_EQ(refused([](P& p) { p.W.nf4.absmax = nullptr; }), "null pointer: absmax");
  EXPECT_EQ(refused([](P& p) { p.W.nf4.offset = nullptr; }), "null pointer: offset");
  EXPECT_EQ(refused([](P& p) { p.in_stride = 32; }), "bad stride: in_stride");
  EXPECT_EQ(refused([](P& p) { p.out_stride = 19; }), "bad stride: out_stride");
  EXPECT_EQ(refused([](P& p) { p.K = 0; }), "bad shape: K");
  EXPECT_EQ(refused([](P& p) { p.N = 0; }), "bad shape: N");
  EXPECT_EQ(refused([](P& p) { p.M = -1; }), "bad shape: M");
  EXPECT_EQ(refused([](P& p) { p.dtype = static_cast<DType>(5); }), "bad dtype: dtype");
  EXPECT_EQ(refused([](P& p) { p.W.kind = static_cast<FrozenKind>(5); }), "bad dtype: kind");
  EXPECT_EQ(refused([](P& p) {
              p.W.kind = FrozenKind::kInt8;
              p.W.int8.codes_stride = 3;
            }),
            "bad stride: codes_stride");
  if (OnCpu()) {
    EXPECT_EQ(refused([](P& p) { p.workspace = nullptr; }), "null pointer: workspace");
    EXPECT_EQ(refused([](P& p) { p.workspace_bytes = 100; }), "bad shape: workspace_bytes");
  }
  EXPECT_EQ(y.bytes(), before);
}

}  // namespace
}  // namespace snug::kernels
